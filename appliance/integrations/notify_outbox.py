"""Sends operator messages by mail and webhook: through the outbox, or without it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader
from appliance.operations.wire import Notice, Via
from appliance.outbox import destination, wire
from appliance.outbox.destination import MAILTO
from appliance.outbox.states import DONE
from appliance.outbox.target import MAIL, Delivered, DeliveryTarget, Outgoing
from appliance.outbox.webhook import FORMAT
from appliance.outbox.webhook_formats import split_destination

if TYPE_CHECKING:
    from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:notify"  # no token has this name
FORMER_MAX = 1000  # messages that a start drops
_FORMER = (
    "SELECT id FROM outbox WHERE status = 'pending' AND principal = ?"
    f" AND coalesce(iif(json_valid(meta), json_extract(meta, '$.{FORMAT}'), ''), '')"
    " || ' ' || destination_ref"
    " NOT IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?"
)


class OutboxNotices:
    """Sends notices through the outbox, or directly through its target when the queue fails. Both
    ways refuse the same addresses and send the same id."""

    def __init__(self, outbox: "Outbox | None", target: DeliveryTarget, clock: Clock) -> None:
        """Use the outbox if it runs; None: send directly."""
        self._outbox = outbox
        self._target = target
        self._clock = clock

    def send(self, to: str, notice: Notice, *, direct: bool) -> Via:
        name, url = split_destination(to)
        body, meta = msgspec.json.encode(notice).decode(), {FORMAT: name}
        if self._target.name == MAIL:
            body, meta = notice.text, {"subject": notice.subject}
        send = wire.Send(url, body, meta=meta, client_message_id=notice.id_for(to),
                         target=self._target.name)  # fmt: skip
        if direct:
            self._deliver(send)
            return "direct"
        if self._outbox is None:
            raise Unavailable("the outbox does not run")
        self._outbox.send(send, internal=True, principal=PRINCIPAL)
        return "outbox"

    def problem(self, to: str, notice: Notice) -> str | None:
        """Return why the first attempt failed, "" if none did; None if there was none yet."""
        assert self._outbox is not None
        row = self._outbox.inspect(notice.id_for(to)).send
        return "" if row.status == DONE else row.last_error

    def _deliver(self, send: wire.Send) -> None:
        kind, ref, _ = self._target.resolve(send.to) or ("queue", send.to, "")
        result = self._target.deliver(Outgoing(
            "", send.client_message_id or "", b"", kind, ref, None, send.priority, send.meta,
            send.message, 1, self._clock.now_ms(), self._target.name,
        ))  # fmt: skip
        if not isinstance(result, Delivered):
            raise Unavailable(result.reason)


def drop_former(outbox: "Outbox", log: Log, destinations: Sequence[str]) -> None:
    """Drop waiting messages for destinations that `notify.to` no longer names. The destinations
    would refuse them until they expire."""
    from appliance.outbox import writes

    current = [
        f" {destination.mail(to)}" if to.startswith(MAILTO) else " ".join(split_destination(to))
        for to in destinations
    ]
    for (send_id,) in outbox.store.read(_find_former, msgspec.json.encode(current).decode()):
        outbox.store.write(writes.drop, send_id)
        log.warning("a message for a former destination of notify.to is dropped", send=send_id)


def _find_former(reader: Reader, refs: str) -> list[tuple[str]]:
    return list(reader.rows(_FORMER, (PRINCIPAL, refs, FORMER_MAX), limit=FORMER_MAX))
