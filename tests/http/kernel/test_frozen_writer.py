"""A served hub whose writer process is frozen: writers get 503, readers go on."""

import os
import signal
from pathlib import Path

import pytest

from tests.http.kernel.test_store_full_disk import writers_of
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow


def test_frozen_writer_answers_503_within_the_limit(tmp_path):
    with serve(tmp_path) as hub:
        topic = hub.channel_with_topic("general")[1]
        message = {"topic_id": topic, "sender": "tester", "content_raw": "hello"}
        (writer,) = writers_of(hub.pid)
        os.kill(writer, signal.SIGSTOP)
        stat = Path(f"/proc/{writer}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", 10, "it is frozen")
        try:
            waited = hub.http.post("/api/v1/messages", message)
            assert (waited.status, waited.body["code"]) == (503, "SERVICE_UNAVAILABLE")
            assert "unknown" in waited.body["error"]
            assert "Idempotency-Key" in waited.body["hint"]
            refused = hub.http.post("/api/v1/messages", message)
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            assert hub.http.get("/-/ready").status == 503
            assert hub.http.get("/api/v1/channels").status == 200
        finally:
            os.kill(writer, signal.SIGCONT)
        until(lambda: hub.http.post("/api/v1/messages", message).status == 201, 30, "a write")
        until(lambda: hub.http.get("/-/ready").status == 200, 30, "it is ready")
        messages = hub.http.get(f"/api/v1/messages?topic_id={topic}").body["messages"]
        assert len(messages) == 2, "the one that waited, and the one after it"
