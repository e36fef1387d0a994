"""Random requests by the served description: no internal error, declared response shapes."""

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.servedhub import serve

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
ENDLESS = {
    "GET /api/v1/events/stream",
    "GET /api/v1/inbox/stream",
    "GET /v1/live",
    "GET /v1/events",
    "GET /bus/v1/stream",
    "GET /api/v1/jobs/runs/{run_id}/events",
}  # these respond forever
EXAMPLES = 3  # the same ones each time, for each of some hundred operations
CONSTANTS = {
    "appliance.hub.ask.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.entries.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.bus.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.service.WAIT_SECONDS_MAX": 0.02,
    "appliance.hub.a2a.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.courier.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.courier.enqueue.BLOCK_MS": 50,
    "appliance.inbox.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.jobs.wire.WAIT_SECONDS_MAX": 0.05,
}

SETTINGS = """[roles]
relay = true
network = true
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), constants=CONSTANTS, settings=SETTINGS) as hub:
        hub.channel_with_topic("general")
        yield hub


@pytest.fixture(scope="module")
def operations(hub):
    document = hub.http.get("/api/v1/openapi.json").body
    schema = schemathesis.openapi.from_dict(document)
    results = [result.ok() for result in schema.get_all_operations()]
    assert len(results) >= 15
    return [operation for operation in results if operation.label not in ENDLESS]


@pytest.fixture(scope="module")
def known(hub):
    """Names of fields, and values of them that exist."""
    channel_id, topic_id = hub.channel_with_topic("known")
    message_id = hub.send(topic_id)["message"]["id"]
    return {
        "channel_id": channel_id,
        "topic_id": topic_id,
        "to_topic_id": hub.topic(channel_id, "other"),
        "message_id": message_id,
        "source_message_id": message_id,
    }


def make_real(case, known):
    """Put ids that exist where the case has made-up ones."""
    for fields in (case.path_parameters, case.query, case.body):
        if isinstance(fields, dict):
            fields.update({name: known[name] for name in known if name in fields})


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_is_answered_with_a_fault_or_off_the_description(hub, operations, known, mode):
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {hub.token}"
    base_url, wrong = f"http://127.0.0.1:{hub.port}", []

    def walk(operation):
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
        def ask(case, real):
            if real:
                make_real(case, known)
            case.call_and_validate(base_url=base_url, session=session, timeout=20, checks=CHECKS)

        ask()

    for operation in operations:
        try:
            walk(operation)
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, (
                "input can be wrong only if there are parameters"
            )
        except (Exception, FailureGroup) as error:
            wrong.append(f"{operation.label}: {error}")
    assert not wrong, "\n\n".join(wrong)
    # A new connection: the one of before may have idled for too long by now.
    assert hub.connect().get("/health").body["pid"] == hub.pid
    assert '"level":"error"' not in hub.log_text
