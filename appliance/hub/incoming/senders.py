"""Verifies how each sender signs, and returns its delivery id. Pure.

    template      credential                                        delivery id
    github        X-Hub-Signature-256: over the body                X-GitHub-Delivery
    gitlab        Standard Webhooks                                 webhook-id
                  X-Gitlab-Token                                    Idempotency-Key, or
                                                                    X-Gitlab-Event-UUID
    alertmanager  Bearer                                            group, status, alerts
    grafana       X-Grafana-Alerting-Signature: over time and body  as alertmanager
                  the same over the body alone; Bearer
    healthchecks  Bearer                                            check, status, pings
    json          Standard Webhooks                                 webhook-id
                  a named header: over the body; Bearer             Idempotency-Key

A signature that covers neither id nor time is also recognized by the body, so a recorded request
with another id makes nothing.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct, json

from appliance.hub.incoming.wire import (
    DELIVERY_ID_LENGTH_MAX,
    BadDelivery,
    DeliveryRefused,
    DeliveryStale,
)
from appliance.hub.rows import IncomingRow
from appliance.kernel.webhook_signature import BadSecret, key_of

TOLERANCE_SECONDS = 300
SIGNATURES_MAX = 8  # that one request may have: while a sender rotates its secret, there are two
Headers = Mapping[str, str]
_is_id = re.compile(rf"[\x21-\x7e]{{1,{DELIVERY_ID_LENGTH_MAX}}}").fullmatch
_is_seconds = re.compile(r"[0-9]{1,12}").fullmatch
_canonical = json.Encoder(order="sorted").encode


class Credential(NamedTuple):
    """A request's credential. `form`: how the expected value is written: `hex`, `sha256`, `v1`, or
    `secret` itself. `prefix`: what is signed before the body. `id`: the signed delivery id."""

    given: list[str]
    form: str
    prefix: bytes = b""
    timestamp: str | None = None
    id: str | None = None


class Verified(Struct, frozen=True):
    """`id`: the delivery id, if it was signed. `repeats`: whether the signed content could be sent
    again under another id."""

    id: str | None
    repeats: bool


Scheme = Callable[[Headers], Credential | None]


def _header(name: str, form: str) -> Scheme:
    def present(headers: Headers) -> Credential | None:
        return Credential([headers[name]], form) if name in headers else None

    return present


def _bearer(headers: Headers) -> Credential | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return Credential([token.strip()], "secret") if scheme.lower() == "bearer" else None


def _grafana(headers: Headers) -> Credential | None:
    given, seconds = (headers.get(f"x-grafana-alerting-{x}") for x in ("signature", "timestamp"))
    if given is None:
        return None
    return Credential([given], "hex", f"{seconds}:".encode() if seconds else b"", seconds or None)


def _standard(headers: Headers) -> Credential | None:
    id_, seconds, given = (headers.get(f"webhook-{x}") for x in ("id", "timestamp", "signature"))
    if id_ is None or seconds is None or given is None:
        return None
    signed = f"{id_}.{seconds}.".encode()
    return Credential(given.split()[:SIGNATURES_MAX], "v1", signed, seconds, id_)


SCHEMES: Mapping[str, tuple[Scheme, ...]] = {
    "github": (_header("x-hub-signature-256", "sha256"),),
    "gitlab": (_standard, _header("x-gitlab-token", "secret")),
    "alertmanager": (_bearer,),
    "grafana": (_grafana, _bearer),
    "healthchecks": (_bearer,),
    "json": (_standard, _bearer),
}
NOTHING = Credential([], "hex")


def _present(row: IncomingRow, headers: Headers) -> Credential:
    """Return what the request presents, in the first of the template's schemes."""
    if row.signature_header is not None:
        given = headers.get(row.signature_header.lower(), "").lower().removeprefix("sha256=")
        return Credential([given], "hex")
    return next(filter(None, (scheme(headers) for scheme in SCHEMES[row.template])), NOTHING)


def verify(row: IncomingRow, headers: Headers, body: bytes, now_s: int) -> Verified:
    """Verify a request. Raises DeliveryRefused or DeliveryStale.

    One HMAC over the body is computed for every request, also if the credential is a token or
    missing, so the time that a refusal takes doesn't depend on the endpoint."""
    credential = _present(row, headers)
    expected = _sign(credential.form, row.secret, credential.prefix + body)
    matches = [_equal(given, expected) for given in credential.given]
    seconds, id_ = credential.timestamp, credential.id
    # A full stop would let the same signature cover another id and time.
    if not any(matches) or (id_ is not None and ("." in id_ or not _is_id(id_))):
        raise DeliveryRefused
    if seconds is not None and (
        not _is_seconds(seconds) or abs(int(seconds) - now_s) > TOLERANCE_SECONDS
    ):
        raise DeliveryStale
    return Verified(id_, credential.form != "secret" and seconds is None)


def _sign(form: str, secret: str, signed: bytes) -> str:
    """Return a credential as the sender writes it."""
    key = secret.encode()
    if form == "v1":
        with suppress(BadSecret):  # Standard Webhooks writes a key as whsec_ and base64
            key = key_of(secret)
    digest = hmac.digest(key, signed, hashlib.sha256)
    forms = {"hex": digest.hex(), "sha256": f"sha256={digest.hex()}", "secret": secret}
    return forms.get(form) or f"v1,{base64.b64encode(digest).decode()}"


def _equal(given: str, expected: str) -> bool:
    """Compare hashes of both, so that the time doesn't depend on the secret's length either."""
    left, right = (hashlib.sha256(text.encode("utf-8", "replace")) for text in (given, expected))
    return hmac.compare_digest(left.digest(), right.digest())


# -- delivery ids ------------------------------------------------------------------------------


def keys_of(
    row: IncomingRow, verified: Verified, headers: Headers, payload: dict[str, Any], body: bytes
) -> list[str]:
    """Return the keys by which a repeated delivery is recognized; the first has the sender's id.
    Empty: the sender gives nothing that is the same at each attempt. Raises BadDelivery."""
    id_ = verified.id or DELIVERY_IDS[row.template](headers, payload)
    if id_ is not None and not _is_id(id_):
        raise BadDelivery(
            f"the delivery id is not 1 to {DELIVERY_ID_LENGTH_MAX} visible ASCII characters"
        )
    keys = [] if id_ is None else [f"id:{id_}"]
    if verified.repeats:
        keys.append(f"body:{hashlib.sha256(body).hexdigest()}")
    return keys


def _github_id(headers: Headers, _payload: dict[str, Any]) -> str:
    id_ = headers.get("x-github-delivery")
    if id_ is None:
        raise BadDelivery(
            "the header X-GitHub-Delivery is missing", hint="--header 'X-GitHub-Delivery: 1'"
        )
    return id_


def _alerts_id(_headers: Headers, payload: dict[str, Any]) -> str:
    """Return an id for the group in this state. A reminder of the same alerts has the same id."""
    alerts = sorted(
        _canonical([alert.get(name) for name in ("status", "labels", "startsAt")])
        for alert in payload.get("alerts", ())
    )
    group = _canonical([payload.get("groupKey"), payload.get("status"), payload.get("receiver")])
    return hashlib.sha256(b"\n".join((group, *alerts))).hexdigest()


def _check_id(_headers: Headers, payload: dict[str, Any]) -> str | None:
    """Return an id for a check's change. Each change to `up` comes with another ping."""
    if "n_pings" not in payload:
        return None
    names = ("ping_url", "unique_key", "name", "status", "n_pings")
    return hashlib.sha256(_canonical([payload.get(name) for name in names])).hexdigest()


DELIVERY_IDS: Mapping[str, Callable[[Headers, dict[str, Any]], str | None]] = {
    "github": _github_id,
    "gitlab": lambda headers, _: (
        headers.get("idempotency-key") or headers.get("x-gitlab-event-uuid")
    ),
    "alertmanager": _alerts_id,
    "grafana": _alerts_id,
    "healthchecks": _check_id,
    "json": lambda headers, _: headers.get("idempotency-key"),
}
