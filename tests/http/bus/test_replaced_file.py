"""A served appliance whose bus file is deleted or replaced: those who wait go on in the new one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.busfile import messages
from appliance.busfile.file import BusPaths, changing
from appliance.busfile.messages import NewMessage
from appliance.kernel.clock import SystemClock
from appliance.sdk.bus import HttpBus
from tests.support.servedhub import serve
from tests.support.until import until


def publish_beside(paths):
    """As the command line does, which makes the file again."""
    with changing(paths) as connection:
        message = NewMessage(from_agent="late", type="note")
        messages.publish(connection, SystemClock().now_ms(), message)


@pytest.mark.parametrize("times", [1, 2])
def test_waits_and_streams_go_on(tmp_path, times):
    paths = BusPaths(tmp_path)
    with (
        serve(tmp_path) as hub,
        ThreadPoolExecutor(3) as pool,
        HttpBus("ada", workspace=tmp_path) as ada,
    ):
        for number in range(5):
            seq = ada.publish("note", number).seq
        fence = ada.claim("t").fence
        for _ in range(times):
            ada.ack(seq)
            with HttpBus("other", workspace=tmp_path) as other:
                other.claim("held", lease_ms=3_600_000)
                polling = pool.submit(ada.poll, wait=60)
                claiming = pool.submit(ada.claim, "held", wait=60)
                with HttpBus("eve", workspace=tmp_path) as eve:
                    following = pool.submit(next, eve.follow(seq))
                    for kind in ("poll", "claim", "stream"):
                        metric = f'bus_sessions{{kind="{kind}"}} 1.0'.encode()
                        until(lambda m=metric: m in hub.http.get("/metrics").raw, what=kind)
                    for path in paths.dir.glob("bus.db*"):
                        path.unlink()
                    publish_beside(paths)
                    assert [message.from_agent for message in polling.result(60)] == ["late"]
                    assert following.result(60).from_agent == "late"
                    assert claiming.result(60).claimed_by == "ada"
                    ada.release("held")
            after = ada.claim("t").fence
            assert after > fence
            fence, last = after, ada.publish("note").seq
            assert last > seq
            seq = last


def test_cursor_of_a_removed_file_waits_for_the_next_one(tmp_path):
    paths = BusPaths(tmp_path)
    with serve(tmp_path) as hub, HttpBus("ada", workspace=tmp_path) as ada:
        seq = ada.publish("note", 1).seq
        for path in paths.dir.glob("bus.db*"):
            path.unlink()
        page = hub.http.get(f"/bus/v1/messages?agent=eve&after={seq}")
        assert (page.status, page.body) == (200, {"messages": [], "head": seq})
        publish_beside(paths)
        page = hub.http.get(f"/bus/v1/messages?agent=eve&after={seq}")
        assert [message["from_agent"] for message in page.body["messages"]] == ["late"]
