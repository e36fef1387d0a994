"""Delivery to a remote broker: signed HTTP requests over kept-alive connections.

Connecting, each read, the whole response and its size are limited. Requests can be repeated
safely, because each send has an id.
"""

import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.http_limits import HttpLimits
from appliance.kernel.unreachable import Unreachable
from appliance.mesh.request_signing import PROBE, RequestSigner
from appliance.mesh.signing import Signer
from appliance.outbox.routes import DELIVERIES_MAX
from appliance.outbox.target import (
    KEY_REFUSALS,
    TRANSIENT_STATUSES,
    DeliveryTarget,
    Outgoing,
    Result,
    RetryLater,
    is_broker_refusal,
    item_of,
    result_of,
)
from appliance.web.webhook_caller import seconds_of

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 15.0  # for the whole response
REPLY_BYTES_MAX = 1024 * 1024  # a broker response's size; a larger one is an error
ACCEPT = "/broker/v1/accept"
BATCH = "/broker/v1/accept/batch"
UNKNOWN = "/broker/v1/accept/unknown"


class BrokerResponse(msgspec.Struct, frozen=True):
    status: int
    body: Any
    retry_after: float | None


class BatchItem(msgspec.Struct, frozen=True):
    status: int
    body: dict[str, Any]


class BatchReply(msgspec.Struct, frozen=True):
    results: list[BatchItem]


class HttpBrokerTarget(DeliveryTarget):
    """One broker. Safe to use from many greenlets: each delivery has its own connection."""

    name = "broker"
    takes_batches = True

    def __init__(
        self,
        url: str,
        signer: Signer | None,
        clock: Clock,
        ca_file: str | None = None,
        broker_id: str | None = None,
    ) -> None:
        from appliance.kernel.http_client import HttpClient

        limits = HttpLimits(CONNECT_SECONDS, REPLY_SECONDS, REPLY_BYTES_MAX, DELIVERIES_MAX)
        tls = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._http = HttpClient(url, limits, "the broker", tls)
        self._signer = signer
        self._signing = RequestSigner(clock, broker_id)

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        """Deliver all sends in one request. If the broker refuses the whole batch, deliver each
        send by itself, because the refusal may concern only one."""
        if len(sends) == 1:
            return self._deliver_each(sends)
        try:
            response = self._call(BATCH, {"items": [item_of(send) for send in sends]})
        except Unreachable as error:
            return [RetryLater(str(error)) for _ in sends]
        if response.status == 200:
            return _results_of(sends, response)
        if isinstance(response.body, dict) and response.body.get("code") in KEY_REFUSALS:
            return [result_of(send, response.status, response.body) for send in sends]
        permanent = 400 <= response.status < 500 and response.status not in TRANSIENT_STATUSES
        if permanent and is_broker_refusal(response.body):
            return self._deliver_each(sends)
        reason = f"the broker responded with {response.status}"
        return [RetryLater(reason, response.retry_after) for _ in sends]

    def _deliver_each(self, sends: Sequence[Outgoing]) -> list[Result]:
        """Deliver one by one; stop at the first send that must be repeated: later sends get the
        same result."""
        results: list[Result] = []
        for send in sends:
            try:
                reply = self._call(ACCEPT, item_of(send))
                results.append(result_of(send, reply.status, reply.body, reply.retry_after))
            except Unreachable as error:
                results.append(RetryLater(str(error)))
            if isinstance(results[-1], RetryLater):
                break
        return results + results[-1:] * (len(sends) - len(results))

    def unknown(self, mesh: str, ids: Sequence[str]) -> list[str] | None:
        try:
            response = self._call(UNKNOWN, {"mesh": mesh, "client_message_ids": ids})
        except Unreachable:
            return None
        unknown = response.body.get("unknown") if isinstance(response.body, dict) else None
        if response.status != 200 or not isinstance(unknown, list):
            return None
        named = {id_ for id_ in unknown if isinstance(id_, str)}
        return [id_ for id_ in ids if id_ in named]

    def close(self) -> None:
        self._http.close()

    # -- one exchange --------------------------------------------------------------------

    def _call(self, path: str, content: Any) -> BrokerResponse:
        """Post `content`. Further requests are made only to learn the broker's id."""
        body = msgspec.json.encode(content)
        signing = self._signing
        if self._signer is not None and not signing.broker_id:
            response = self._request("GET", PROBE, b"")
            signing.learn(response.status, response.body)
            if not signing.broker_id:
                return response
        response = self._request("POST", path, body)
        if signing.learn(response.status, response.body):
            response = self._request("POST", path, body)
        return response

    def _request(self, method: str, path: str, body: bytes) -> BrokerResponse:
        headers = partial(self._headers, method, path, body)
        try:
            response = self._http.request(method, self._http.prefix + path, headers, body)
        except Unreachable:
            self._signing.forget()
            raise
        return BrokerResponse(
            response.status, _decode(response.body), seconds_of(response.headers.get("Retry-After"))
        )

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        if self._signer is not None:
            headers |= self._signing.headers(self._signer, method, path, "", body)
        return headers


def _results_of(sends: Sequence[Outgoing], response: BrokerResponse) -> list[Result]:
    try:
        items = msgspec.convert(response.body, BatchReply).results
        return [_result_of(send, item) for send, item in zip(sends, items, strict=True)]
    except (msgspec.ValidationError, ValueError):
        return [RetryLater("the broker's response does not match the batch") for _ in sends]


def _result_of(send: Outgoing, item: BatchItem) -> Result:
    details = item.body.get("details")
    retry_after = item.body.get("retry_after")
    if retry_after is None and isinstance(details, dict):
        retry_after = details.get("retry_after")
    return result_of(send, item.status, item.body, seconds_of(retry_after))


def _decode(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content) if content else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
