"""Signed requests to a broker whose disk is full, and which is killed then."""

import time

import pytest

from tests.support.broker import key, signed
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk

pytestmark = [pytest.mark.root, pytest.mark.slow]

HISTORY = "/broker/v1/meshes/lab/history"
SETTINGS = "[store]\nfree_bytes_min = 0\n"
READS, KILLS = 60, 4


def test_read_accepted_on_a_full_disk_is_refused_after_a_kill(tmp_path):
    """Refused with 503, or accepted with its nonce on the disk: never accepted twice."""
    with small_disk(tmp_path, "ext4", 48) as disk:
        hub = ServedHub(disk.root / "workspace", "--no-limits", settings=SETTINGS)
        hub.start()
        hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
        member = {"pubkey": key("anna"), "name": "anna"}
        hub.made(hub.http.post("/broker/v1/meshes/lab/members", member))
        wrong = signed("anna", "GET", HISTORY, b"", int(time.time() * 1000), "other")
        answer = hub.connect(None).get(HISTORY, headers=wrong)
        broker = answer.body["details"]["broker_id"]
        statuses = set()
        for _ in range(KILLS):
            accepted = []
            for number in range(READS):
                if number == READS // 3:
                    disk.fill()
                now_ms = int(time.time() * 1000)
                headers = signed("anna", "GET", HISTORY, b"", now_ms, broker)
                status = hub.connect(None).get(HISTORY, headers=headers).status
                statuses.add(status)
                if status == 200:
                    accepted.append(headers)
            assert len(accepted) >= READS // 3
            hub.kill()
            disk.clear()
            hub.start()
            for headers in accepted:
                answer = hub.connect(None).get(HISTORY, headers=headers)
                assert (answer.status, answer.body["code"]) == (401, "SIGNATURE_USED")
        hub.kill()
    assert statuses == {200, 503}
