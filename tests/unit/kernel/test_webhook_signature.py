"""Webhook signatures: the specification's examples, its library, and invalid secrets."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from appliance.kernel.webhook_signature import BadSecret, headers, key_of, new_secret, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"


def now() -> int:
    return int(datetime.now(UTC).timestamp())


def test_signature_equals_the_published_example():
    signature = sign(SECRET, ID, 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(body=st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_reference_library_verifies_the_signature(body):
    secret = new_secret()
    text = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    made = headers([secret], "e1:42", now(), text)
    assert Webhook(secret).verify(text, made) == json.loads(text)


def test_an_id_with_a_full_stop_is_never_signed():
    with pytest.raises(ValueError, match="full stop"):
        sign(SECRET, "a.1", 1, b"")


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_not base64",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsk_" + base64.b64encode(b"x" * 32).decode(),
        "whsec_é",
    ],
)
def test_invalid_secrets_are_refused(secret):
    with pytest.raises(BadSecret) as refused:
        key_of(secret)
    assert secret in ("", "whsec_") or secret not in refused.value.message
