"""Mail of a served appliance: kill -9 of either side, and each send arrives under one id."""

import signal
from collections import defaultdict

import pytest

from tests.support.commands import agentlip
from tests.support.mailserver import mail_server
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

SETTINGS = """
[outbox]
retry = {{ initial_seconds = 0.02, max_seconds = 0.1 }}

[mail]
host = "127.0.0.1"
port = {port}
security = "none"
sender = "agent@example.org"
allow = ["@example.com"]
"""
CONSTANTS = {
    "appliance.outbox.loops.POLL_SECONDS": 0.05,
    "appliance.outbox.mail.DELIVERY_SECONDS": 0.5,
}
SENDS = 12


def test_each_mail_keeps_one_message_id_despite_kills_of_both_sides(tmp_path):
    with mail_server(tmp_path / "mail") as server:
        (tmp_path / "hub").mkdir()
        hub = ServedHub(tmp_path / "hub", "--no-limits", settings=SETTINGS.format(port=server.port))
        hub.constants = CONSTANTS
        with hub.running(ending=signal.SIGKILL):
            server.rule(data="cut")  # takes the letter, and the answer is lost
            words = ("outbox", "send", "mailto:ops@example.com", "text", "--subject", "s0")
            assert agentlip(*words, cwd=hub.workspace).code == 0
            for number in range(1, SENDS):
                to = f"mailto:ops@d{number % 3}.example.com"
                refused = hub.http.post("/v1/send", {"to": to, "message": "x"})
                assert refused.body["code"] == "MAIL_NOT_ALLOWED"
                body = {"to": "mailto:ops@example.com", "message": f"text {number}",
                        "meta": {"subject": f"s{number}"}}  # fmt: skip
                headers = {"Idempotency-Key": f"k{number}"}
                assert hub.http.post("/v1/send", body, headers=headers).status == 202
            until(lambda: len(server.mails) > 3, 20, "letters without an answer")
            hub.kill()
            hub.start()
            server.rule(data="hang")
            commands_before = len(server.commands)
            until(lambda: "DATA" in server.commands[commands_before:], 20, "a letter on its way")
            until(lambda: "in time" in reasons(hub), 20, "an attempt reached its limit")
            hub.kill()
            server.kill()
            hub.start()
            until(lambda: "refused the connection" in reasons(hub), 20, "nobody there")
            server.rule()
            server.start()
            until(lambda: states(hub) == {"done"}, 30, "all are delivered")
            ids = defaultdict(set)
            for mail in server.mails:
                ids[mail.message["Subject"]].add(mail.id)
            assert sorted(ids) == sorted(f"s{number}" for number in range(SENDS))
            assert {len(attempts) for attempts in ids.values()} == {1}
            assert len(server.mails) > SENDS  # repetitions there were
            message_ids = {row["broker_message_id"] for row in rows(hub)}
            assert message_ids == set.union(*ids.values())


def rows(hub):
    return hub.http.get("/v1/outbox/sends?limit=100").body["sends"]


def states(hub):
    return {row["status"] for row in rows(hub)}


def reasons(hub):
    return " ".join(row["last_error"] or "" for row in rows(hub))
