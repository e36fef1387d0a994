"""Sockets of the courier: one that receives (`/v1/subscribe`), one that sends (`/v1/publish`).

    subscriber says  {"credit": 10}  {"ack": "e-1"}  {"ack": ["e-1", "e-2"]}  {"nack": "e-1",
                     "delayMs": 500, "mode": "fail"}  {"extend": "e-1", "leaseMs": 60000}
    server says      {"deliver": {…}}  or, with ?batch=N,  {"deliver": [{…}, …]}
    publisher says   {"seq": 7, "to": "agents/Jen/inbox", "envelope": {…}}  or an array of them
    server says      {"accepted": 7}: everything up to 7 that was not refused
    both hear        {"error": {"code": 409, "message": …, "name": …}}

What a client says wrong gets an error frame and changes nothing; only a frame that is too
large, or a client that reads nothing, ends the connection.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from appliance.courier import metrics, wire
from appliance.courier.access import ENQUEUE
from appliance.courier.envelope import Parsed, encode, parse
from appliance.courier.item import Item
from appliance.courier.ring import Ring
from appliance.courier.service import Courier
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Exhausted, Invalid
from appliance.kernel.wakeup import Signal
from appliance.web.body import refuse_field
from appliance.web.frame import text_frame
from appliance.web.socket import TOO_BIG, Socket, SocketSettings

WRITE_MAX = 2_000  # deliveries joined into one write
FEW = 4  # deliveries whose bytes are not worth counting
_control = msgspec.json.Decoder(wire.Control).decode
_publish = msgspec.json.Decoder(wire.Publish | list[wire.Publish]).decode
_one = msgspec.json.Decoder(wire.Publish).decode
_several = msgspec.json.Decoder(list[msgspec.Raw]).decode
_number = msgspec.json.Decoder(wire.Numbered).decode


class Subscriber:
    """A socket that receives deliveries while it has credit."""

    def __init__(
        self,
        socket: Socket,
        courier: Courier,
        who: Principal,
        query: wire.SubscribeQuery,
        settings: SocketSettings,
    ) -> None:
        self._socket = socket
        self._courier = courier
        self._who = who
        self._query = query
        self._settings = settings
        self._signal = Signal()
        self._taker = courier.taker(query.name or who.id, self._signal.set, query.lease_ms)
        self._acks: list[str] = []
        self._credit = 0

    def run(self) -> int:
        courier, taker = self._courier, self._taker
        try:
            courier.subscribe(self._who, taker, self._query.stream)
            if self._query.credit:
                courier.grant(taker, self._query.credit)
        except ApplianceError as error:
            self._socket.send(error_frame(error))
            courier.leave(taker)
            raise
        with metrics.sessions.labels("subscribe").track_inprogress():
            try:
                return self._socket.run(self._on_messages, self._signal.set, self._write)
            finally:
                courier.leave(taker)

    # -- the writing greenlet -------------------------------------------------------------

    def _write(self) -> None:
        taker, socket = self._taker, self._socket
        batch = self._query.batch
        while True:
            # Clearing comes first: what is dealt while the lines below write sets it again.
            self._signal.clear()
            items = taker.out
            count = fitting(items, self._courier.settings.delivery_bytes_max)
            taker.out = items[count:]
            if taker.out:
                items = items[:count]
                self._signal.set()
            socket.flush()
            if items:
                # A lease may have run out, or been given back, since it was dealt.
                mine = [item for item in items if item.holder is taker]
                self._courier.told(taker, mine)
                socket.send(batches(mine, batch) if batch else singles(mine))
            else:
                self._signal.wait(self._settings.ping_seconds / 4)

    # -- the reading greenlet ---------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        for message in messages:
            if len(message) > self._settings.frame_bytes_max:
                self._socket.close(TOO_BIG, "the frame is too large")
                break
            try:
                self._take(decoded(_control, message))
            except ApplianceError as error:
                self._refuse(error)
        self._settle()

    def _take(self, said: wire.Control) -> None:
        ack, credit = said.ack, said.credit
        if ack is not UNSET:
            if isinstance(ack, str):
                self._acks.append(ack)
            else:
                self._acks += ack
        if said.nack is not UNSET or said.extend is not UNSET:
            self._settle()
            self._nack(said)
        elif ack is UNSET and credit is UNSET:
            raise Invalid(
                "unknown operation", hint="say credit, ack, nack or extend; see docs/courier.md"
            )
        if credit is not UNSET:
            room = self._courier.settings.credit_max - self._taker.credit - self._credit
            if credit > room:
                self._settle()
                self._courier.grant(self._taker, credit)
            else:
                self._credit += credit

    def _nack(self, said: wire.Control) -> None:
        lost: list[str] = []
        if said.nack is not UNSET:
            lost += self._courier.nack(
                self._taker, as_list(said.nack), said.mode, said.delay_ms, said.error
            )
        if said.extend is not UNSET:
            lost += self._courier.extend(self._taker, as_list(said.extend), said.lease_ms)
        self._lost(lost)

    def _settle(self) -> None:
        """Acks and credit of the frames that came together."""
        acks, credit = self._acks, self._credit
        self._acks, self._credit = [], 0
        if credit:  # before the acks, so that one deal serves both
            self._taker.grant(credit, self._courier.now())
        if acks:
            self._lost(self._courier.ack(self._taker, acks))
        if credit:
            self._courier.grant(self._taker, 0)

    def _lost(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self._refuse(wire.NotHeld(), id=id_[:200])

    def _refuse(self, error: ApplianceError, **more: Any) -> None:
        self._socket.answer(error_frame(error, **more))


class Publisher:
    """A socket that sends envelopes and hears how far they were accepted."""

    def __init__(
        self,
        socket: Socket,
        courier: Courier,
        who: Principal,
        charge: Callable[[int], None],
        settings: SocketSettings,
    ) -> None:
        self._socket = socket
        self._courier = courier
        self._who = who
        self._charge = charge
        self._settings = settings
        self._signal = Signal()
        self._accepted: int | None = None
        self._ring: Ring | None = None
        self._waiting: list[Parsed] = []
        self._seqs: list[int] = []

    def run(self) -> int:
        with metrics.sessions.labels("publish").track_inprogress():
            return self._socket.run(self._on_messages, self._signal.set, self._write)

    def _write(self) -> None:
        while True:
            self._signal.clear()
            self._socket.flush()
            self._signal.wait(self._settings.ping_seconds / 4)

    def _on_messages(self, messages: list[bytes]) -> None:
        self._ring = None
        bytes_max = self._courier.settings.envelope_bytes_max
        for message in messages:
            if len(message) > self._settings.frame_bytes_max:
                self._socket.close(TOO_BIG, "the frame is too large")
                break
            for one in self._read(message):
                self._take(one, bytes_max)
        self._insert()
        if self._accepted is not None:
            self._socket.answer(text_frame(b'{"accepted":%d}' % self._accepted))
            self._accepted = None

    def _read(self, message: bytes) -> list[wire.Publish]:
        """The frames of a message; of several, one that is wrong is refused alone."""
        try:
            said = decoded(_publish, message)
        except ApplianceError as error:
            return self._read_each(message, error)
        if not isinstance(said, list):
            return [said]
        if len(said) > self._courier.settings.batch_max:
            self._refuse_array(len(said), {"seq": said[0].seq})
            return []
        return said

    def _read_each(self, message: bytes, error: ApplianceError) -> list[wire.Publish]:
        try:
            parts = _several(message)
        except (msgspec.DecodeError, RecursionError):
            parts = []
        if not parts:
            self._refuse(error, **number_of(message))
            return []
        if len(parts) > self._courier.settings.batch_max:
            self._refuse_array(len(parts), number_of(parts[0]))
            return []
        found = []
        for part in parts:
            try:
                found.append(decoded(_one, part))
            except ApplianceError as problem:
                self._refuse(problem, **number_of(part))
        return found

    def _take(self, said: wire.Publish, bytes_max: int) -> None:
        try:
            if self._ring is None or self._ring.name != said.to:
                self._insert()
                self._ring = self._courier.ring_to(self._who, ENQUEUE, said.to)
            self._waiting.append(parse(said.envelope, said.to, bytes_max))
            self._seqs.append(said.seq)
        except ApplianceError as error:
            self._refuse(error, seq=said.seq)

    def _insert(self) -> None:
        """What came together for one stream goes in together; else one by one."""
        parsed, seqs, ring = self._waiting, self._seqs, self._ring
        self._waiting, self._seqs = [], []
        if not parsed or ring is None:
            return
        try:
            self._put(ring, parsed, seqs)
        except Exhausted as error:
            if len(parsed) == 1:
                self._refuse(error, seq=seqs[0])
                return
            for one, seq in zip(parsed, seqs, strict=True):
                try:
                    self._put(ring, [one], [seq])
                except ApplianceError as refusal:
                    self._refuse(refusal, seq=seq)
        except ApplianceError as error:
            for seq in seqs:
                self._refuse(error, seq=seq)

    def _put(self, ring: Ring, parsed: Sequence[Parsed], seqs: Sequence[int]) -> None:
        self._charge(len(parsed))
        self._courier.insert(self._who, ring, parsed)
        self._accepted = seqs[-1]

    def _refuse_array(self, count: int, first: dict[str, int]) -> None:
        """One error for all of it: nothing of an array beyond the limit is taken."""
        limit = self._courier.settings.batch_max
        error = Invalid(
            f"an array holds at most {limit} envelopes",
            hint=f"send at most {limit} in one array; the limit is courier.batch_max",
        )
        self._refuse(error, **first, count=count, limit=limit)

    def _refuse(self, error: ApplianceError, **more: Any) -> None:
        self._socket.answer(error_frame(error, **more))


def fitting(items: Sequence[Item], bytes_max: int) -> int:
    """How many of the first go out in one write: at least one, if there are any."""
    if len(items) <= FEW:
        return len(items)
    size = 0
    for count, item in enumerate(items[:WRITE_MAX]):
        size += len(item.body)
        if size > bytes_max:
            return max(count, 1)
    return min(len(items), WRITE_MAX)


def singles(items: Sequence[Item]) -> bytes:
    """A frame for each delivery, joined."""
    frames = []
    for item in items:
        if item.delivered > 1:
            said = b'{"deliver":%b,"attempt":%d}' % (item.body, item.delivered)
        else:
            said = b'{"deliver":%b}' % item.body
        frames.append(text_frame(said))
    return b"".join(frames)


def batches(items: Sequence[Item], most: int) -> bytes:
    """Frames with up to `most` deliveries each, joined."""
    return b"".join(
        text_frame(b'{"deliver":[%b]}' % b",".join([i.body for i in items[at : at + most]]))
        for at in range(0, len(items), most)
    )


def number_of(part: bytes | msgspec.Raw) -> dict[str, int]:
    """The `seq` of a frame that could not be read, if that much can."""
    try:
        seq = _number(part).seq
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {} if seq is UNSET else {"seq": seq}


def as_list(ids: str | list[str]) -> list[str]:
    return [ids] if isinstance(ids, str) else ids


def decoded(decode: Callable[[Any], Any], message: bytes | msgspec.Raw) -> Any:
    """The frame, or an Invalid that names the field."""
    try:
        return decode(message)
    except msgspec.ValidationError as error:
        refuse_field(str(error))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid("the frame is not valid JSON") from None


def error_frame(error: ApplianceError, **more: Any) -> bytes:
    said = wire.problem(error, **more)
    metrics.errors.labels(str(said["code"])).inc()
    return text_frame(encode({"error": said}))
