"""Files of a set are read back as they were written, or refused."""

import hashlib
from io import BytesIO

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.backup.encoding import CHUNK_BYTES, Encoded, Undecodable, decode, encode
from appliance.backup.errors import KeyRefused

KEY = pyrage.x25519.Identity.generate()
OTHER = pyrage.x25519.Identity.generate()
BIG = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(CHUNK_BYTES // 12))


def encoded(content: bytes, *recipients: object) -> tuple[bytes, Encoded]:
    target = BytesIO()
    done = encode(BytesIO(content), target, level=3, recipients=recipients)
    return target.getvalue(), done


@given(st.binary(max_size=5000), st.integers(1, 400), st.booleans())
def test_content_is_read_back_as_it_was_written(part: bytes, times: int, secret: bool) -> None:
    content = part * times
    stored, done = encoded(content, *([KEY.to_public()] if secret else []))
    target = BytesIO()
    again = decode(
        BytesIO(stored), target, bytes_max=len(content), identities=[KEY] if secret else None
    )
    assert target.getvalue() == content
    assert again == done
    assert done == Encoded(
        len(content), hashlib.sha256(content).hexdigest(),
        len(stored), hashlib.sha256(stored).hexdigest(),
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"x", BIG])
def test_each_recipient_can_read_it(content: bytes) -> None:
    stored, _ = encoded(content, KEY.to_public(), OTHER.to_public())
    for key in (KEY, OTHER):
        target = BytesIO()
        decode(BytesIO(stored), target, bytes_max=len(content), identities=[key])
        assert target.getvalue() == content


@given(st.binary(max_size=5000))
def test_wrong_key_is_refused_before_anything_is_written(content: bytes) -> None:
    stored, _ = encoded(content, KEY.to_public())
    target = BytesIO()
    with pytest.raises(KeyRefused):
        decode(BytesIO(stored), target, bytes_max=len(content), identities=[OTHER])
    assert target.getvalue() == b""


@pytest.mark.parametrize("secret", [False, True])
def test_file_that_ends_early_goes_on_or_says_too_much_is_refused(secret: bool) -> None:
    keys = [KEY] if secret else None
    stored, _ = encoded(BIG, *([KEY.to_public()] if secret else []))
    for broken in (stored[:-1], stored[: len(stored) // 2], stored + b"x", stored + stored):
        with pytest.raises(Undecodable):
            decode(BytesIO(broken), BytesIO(), bytes_max=len(BIG), identities=keys)
    target = BytesIO()
    with pytest.raises(Undecodable, match="contains more than"):
        decode(BytesIO(stored), target, bytes_max=len(BIG) - 1, identities=keys)
    assert len(target.getvalue()) < len(BIG)


@pytest.mark.parametrize("secret", [False, True])
def test_errors_of_the_disk_come_through_as_they_are(secret: bool) -> None:
    class Full:
        def write(self, data: bytes, /) -> int:
            del data
            raise OSError(28, "No space left on device")

    keys = [KEY] if secret else None
    recipients = [KEY.to_public()] if secret else []
    with pytest.raises(OSError, match="No space") as raised:
        encode(BytesIO(BIG), Full(), level=3, recipients=recipients)
    assert raised.value.errno == 28
    stored, _ = encoded(BIG, *recipients)
    with pytest.raises(OSError, match="No space"):
        decode(BytesIO(stored), Full(), bytes_max=len(BIG), identities=keys)
