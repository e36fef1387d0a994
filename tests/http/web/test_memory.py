"""A request for which the process gets no memory is refused, and the process goes on."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servedhub import ServedHub, serve

MIB = 1024 * 1024
BATCH = b'{"messages":[{"topic_id":"%b","sender":"s","content_raw":"' + b"x" * 7 * MIB + b'"}]}'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ServedHub]:
    with serve(tmp_path) as running:
        yield running


def address_space_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def test_request_without_memory_is_503_and_the_process_goes_on(hub: ServedHub) -> None:
    topic = hub.topic(hub.channel("a"))
    raw, pid = BATCH % topic.encode(), hub.pid
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    for _ in range(5):  # a thread that ends frees address space
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space_bytes(pid) + 2 * MIB, before[1]))
        refused = hub.http.post("/api/v1/messages/batch", raw=raw)
        if refused.status == 503:
            break
    assert (refused.status, refused.body["code"]) == (503, "OUT_OF_MEMORY")
    assert refused.headers["retry-after"] == "1"
    resource.prlimit(pid, resource.RLIMIT_AS, before)
    assert hub.send(topic)["message"]["topic_id"] == topic
    # The item is too large, which can be seen only by a server that has read it.
    assert (
        hub.http.post("/api/v1/messages/batch", raw=raw).body["results"][0]["code"]
        == "PAYLOAD_TOO_LARGE"
    )
