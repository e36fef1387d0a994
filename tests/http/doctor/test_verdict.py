"""`GET /api/v1/doctor`: its scope, the checks that run, and how long a result is repeated."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

PATH = "/api/v1/doctor"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    constants = {"doctor.verdict.CACHE_SECONDS": 3600}
    with serve(tmp_path_factory.mktemp("hub"), constants=constants) as hub:
        yield hub


def test_requests_share_a_run_and_its_age_grows(hub):
    """Each check reports how long it took, so two runs are never equal."""

    def ask(_number):
        return hub.connect().get(PATH).body

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(4)))
    answers.append(hub.http.get(PATH).body)
    ages = [answer.pop("age_seconds") for answer in answers]
    assert all(answer == answers[0] for answer in answers)
    assert ages[-1] == max(ages)


def test_checks_are_chosen_by_name_and_by_group(hub):
    def names(query):
        return [check["check"] for check in hub.http.get(f"{PATH}?{query}").body["checks"]]

    assert names("run=host.disk,hub.search") == ["host.disk", "hub.search"]
    groups = {name.partition(".")[0] for name in names("group=store,tokens")}
    assert groups == {"store", "tokens"}
    assert names("run=store") == names("group=store")


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ("run=host.disc", "UNKNOWN_CHECK", "host.disk"),
        ("group=nothing", "UNKNOWN_CHECK", "agentlip doctor list"),
        ("run=store.integrity", "EXPENSIVE_CHECK", "agentlip doctor --run store.integrity"),
    ],
)
def test_checks_that_can_not_run_here_are_refused(hub, query, code, hint):
    answer = hub.http.get(f"{PATH}?{query}")
    assert (answer.status, answer.body["code"]) == (400, code)
    assert hint in answer.body["hint"]
