"""Files of a backup are read back as they were written, or refused."""

import hashlib
import os
import resource
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.backup.encoding import CHUNK_BYTES, Encoded, Undecodable, decode, encode, zstd
from tests.support.forks import exit_code_of

KEY = pyrage.x25519.Identity.generate()


def encoded(content: bytes, *recipients: object) -> tuple[bytes, Encoded]:
    target = BytesIO()
    done = encode(BytesIO(content), target, recipients=recipients)
    return target.getvalue(), done


@given(st.binary(max_size=5000), st.integers(1, 400), st.booleans())
def test_content_is_read_back_as_it_was_written(part: bytes, times: int, secret: bool) -> None:
    content = part * times
    stored, done = encoded(content, *([KEY.to_public()] if secret else []))
    target = BytesIO()
    identities = [KEY] if secret else None
    again = decode(iter([stored]), target, bytes_max=len(content), identities=identities)
    assert target.getvalue() == content
    assert again == (done.bytes, done.sha256)
    assert done == Encoded(
        len(content), hashlib.sha256(content).hexdigest(),
        len(stored), hashlib.sha256(stored).hexdigest(),
    )  # fmt: skip


class Endless:
    """Reads as many bytes as it was made for, and keeps none."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.written = 0

    def read(self, size: int, /) -> bytes:
        taken = min(size, self.left)
        self.left -= taken
        return os.urandom(taken)  # zstd can't make it smaller

    def write(self, data: bytes, /) -> int:
        self.written += len(data)
        return len(data)


def memory_is_small_for(work: Callable[[], bool]) -> bool:
    """In a process of its own: `work` returns true, and needs less than 64 MiB more."""

    def measure() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert work()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < 64 * CHUNK_BYTES

    return exit_code_of(measure) == 0


@pytest.mark.slow
@pytest.mark.parametrize("secret", [False, True])
def test_memory_does_not_grow_with_the_file(secret: bool, tmp_path: Path) -> None:
    count, file = 256 * CHUNK_BYTES, tmp_path / "file"

    def work() -> bool:
        sink = Endless(0)
        with file.open("wb") as target:
            recipients = [KEY.to_public()] if secret else []
            encode(Endless(count), target, recipients=recipients)
        with file.open("rb") as source:
            chunks = iter(lambda: source.read(CHUNK_BYTES), b"")
            decode(chunks, sink, bytes_max=count, identities=[KEY] if secret else None)
        return sink.written == count

    assert memory_is_small_for(work)


def test_file_that_expands_without_end_is_refused_in_little_memory() -> None:
    stored = zstd().compress(bytes(512 * CHUNK_BYTES))
    assert len(stored) < CHUNK_BYTES

    def work() -> bool:
        with pytest.raises(Undecodable, match="contains more than"):
            decode(iter([stored]), Endless(0), bytes_max=1000)
        return True

    assert memory_is_small_for(work)
