"""WebSockets of the courier: `/v1/subscribe` for consumers, `/v1/publish` for producers.

    consumer sends   {"credit": 10}  {"ack": "e-1"}  {"ack": ["e-1", "e-2"]}  {"nack": "e-1",
                     "delayMs": 500, "mode": "fail"}  {"extend": "e-1", "leaseMs": 60000}
    server sends     {"deliver": {…}, "attempt": 2}
                     or, with ?batch=N,  {"deliver": [{…}, …], "attempts": [2, …]}
    producer sends   {"seq": 7, "to": "agents/Jen/inbox", "envelope": {…}}  or an array of them
    server sends     {"accepted": 7}: everything up to 7 that got no error frame
    to both          {"error": {"code": 409, "message": …, "name": …}}

An invalid frame gets an error frame and changes nothing. Only a frame that is too large, or a
client that doesn't read, ends the connection.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET

from appliance.courier import metrics, wire
from appliance.courier.access import ENQUEUE
from appliance.courier.envelope import ParsedEnvelope, encode, parse
from appliance.courier.item import StreamItem
from appliance.courier.service import CREDIT_MAX, DELIVERY_BYTES_MAX, Courier
from appliance.courier.stream import Stream
from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError, Exhausted, Invalid
from appliance.kernel.pause_book import PauseBook
from appliance.kernel.pauses import Paused
from appliance.kernel.wakeup import Wakeup
from appliance.web.body import decode_json
from appliance.web.frame import text_frame
from appliance.web.socket import Socket

WRITE_MAX = 2_000  # deliveries joined into one write
_decode_control = msgspec.json.Decoder(wire.ConsumerFrame).decode
_decode_publishes = msgspec.json.Decoder(wire.PublishFrame | list[wire.PublishFrame]).decode
_decode_publish = msgspec.json.Decoder(wire.PublishFrame).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
CONNECTION_LOST = 1006  # without a close frame: the client crashed, or its machine is gone
_decode_sequence = msgspec.json.Decoder(wire.SequenceOnly).decode


class ConsumerSocket:
    """A WebSocket that delivers envelopes to a consumer while it has credit."""

    def __init__(
        self,
        socket: Socket,
        courier: Courier,
        who: Principal,
        query: wire.SubscribeQuery,
        pauses: PauseBook,
    ) -> None:
        self._socket = socket
        self._courier = courier
        self._who = who
        self._query = query
        self._pauses = pauses
        self._wakeup = Wakeup()
        self._consumer = courier.make_consumer(
            query.name or who.id, self._wakeup.set, query.lease_ms
        )
        self._acks: list[str] = []
        self._credit = 0
        self._is_paused = False

    def run(self) -> int:
        courier, consumer = self._courier, self._consumer
        try:
            courier.subscribe(self._who, consumer, self._query.stream)
            self._follow_pauses()
            if self._query.credit:
                courier.grant(consumer, self._query.credit)
        except ApplianceError as error:
            self._socket.send(error_frame(error))
            courier.disconnect(consumer)
            raise
        with metrics.sessions.labels("subscribe").track_inprogress():
            code = 0
            stop = self._pauses.watch(self._follow_pauses)
            try:
                code = self._socket.run(self._on_messages, self._wakeup.set, self._write)
            finally:
                stop()
                courier.disconnect(consumer, is_lost=code == CONNECTION_LOST)
        return code

    def _follow_pauses(self) -> None:
        """Leave the stream while a pause applies, with an error frame. Leases and credit stay."""
        consumer, queue = self._consumer, self._courier.queue
        try:
            self._pauses.check(self._who, filter(None, (self._query.name,)))
        except Paused as paused:
            if not self._is_paused:
                self._is_paused, credit = True, consumer.credit
                queue.unsubscribe(consumer)
                consumer.credit = credit
                self._socket.post(error_frame(paused))
            return
        if self._is_paused:
            self._is_paused = False
            queue.subscribe(consumer, self._query.stream, self._courier.now())
            self._courier.grant(consumer, 0)

    # -- the writing greenlet -------------------------------------------------------------

    def _write(self) -> None:
        consumer, socket = self._consumer, self._socket
        batch = self._query.batch
        while True:
            # Clear first: dispatching while the lines below write sets the event again.
            self._wakeup.clear()
            items = consumer.outgoing
            count = count_fitting(items, DELIVERY_BYTES_MAX)
            consumer.outgoing = items[count:]
            if consumer.outgoing:
                items = items[:count]
                self._wakeup.set()
            socket.flush()
            if items:
                # A lease can have expired or been released since the dispatch.
                still_leased = [item for item in items if item.consumer is consumer]
                socket.send(
                    batch_frames(still_leased, batch) if batch else delivery_frames(still_leased)
                )
            else:
                self._wakeup.wait(self._socket.wait_seconds)

    # -- the reading greenlet ---------------------------------------------------------------

    def _on_messages(self, messages: list[bytes]) -> None:
        for message in messages:
            try:
                self._handle(decode_json(_decode_control, message, "the frame"))
            except ApplianceError as error:
                answer_error(self._socket, error)
        self._apply()

    def _handle(self, frame: wire.ConsumerFrame) -> None:
        ack, credit = frame.ack, frame.credit
        if ack is not UNSET:
            if isinstance(ack, str):
                self._acks.append(ack)
            else:
                self._acks += ack
        if frame.nack is not UNSET or frame.extend is not UNSET:
            self._apply()
            self._nack(frame)
        elif ack is UNSET and credit is UNSET:
            raise Invalid(
                "unknown operation",
                hint="send credit, ack, nack or extend; see docs/reference/courier.md",
            )
        if credit is not UNSET:
            credit_left = CREDIT_MAX - self._consumer.credit - self._credit
            if credit > credit_left:
                self._apply()
                self._courier.grant(self._consumer, credit)
            else:
                self._credit += credit

    def _nack(self, frame: wire.ConsumerFrame) -> None:
        lost: list[str] = []
        if frame.nack is not UNSET:
            lost += self._courier.nack(
                self._consumer, as_list(frame.nack), frame.mode, frame.delay_ms, frame.error
            )
        if frame.extend is not UNSET:
            lost += self._courier.extend(self._consumer, as_list(frame.extend), frame.lease_ms)
        self._report_lost(lost)

    def _apply(self) -> None:
        """Apply the acks and the credit from all frames that were read together."""
        acks, credit = self._acks, self._credit
        self._acks, self._credit = [], 0
        if credit:  # before the acks, so that one dispatch uses both
            self._consumer.grant(credit, self._courier.now())
        if acks:
            self._report_lost(self._courier.ack(self._consumer, acks))
        if credit:
            self._courier.grant(self._consumer, 0)

    def _report_lost(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            answer_error(self._socket, wire.LeaseLost(), id=id_[:200])


class ProducerSocket:
    """A WebSocket on which a producer sends envelopes and gets cumulative confirmations."""

    def __init__(
        self, socket: Socket, courier: Courier, who: Principal, charge: Callable[[int], None]
    ) -> None:
        self._socket = socket
        self._courier = courier
        self._who = who
        self._charge = charge
        self._wakeup = Wakeup()
        self._accepted: int | None = None
        self._stream: Stream | None = None
        self._pending: list[ParsedEnvelope] = []
        self._seqs: list[int] = []
        self._starts: list[int] = []  # where another message's envelopes begin in `_pending`

    def run(self) -> int:
        with metrics.sessions.labels("publish").track_inprogress():
            return self._socket.run(self._on_messages, self._wakeup.set, self._write)

    def _write(self) -> None:
        while True:
            self._wakeup.clear()
            self._socket.flush()
            self._wakeup.wait(self._socket.wait_seconds)

    def _on_messages(self, messages: list[bytes]) -> None:
        self._stream = None
        for message in messages:
            self._starts.append(len(self._pending))
            for envelope in self._read(message):
                self._handle(envelope)
        self._insert()
        if self._accepted is not None:
            self._socket.answer(text_frame(b'{"accepted":%d}' % self._accepted))
            self._accepted = None

    def _read(self, message: bytes) -> list[wire.PublishFrame]:
        """Return the frames in a message. In an array, only the invalid ones get errors."""
        try:
            frame = decode_json(_decode_publishes, message, "the frame")
        except ApplianceError as error:
            return self._read_each(message, error)
        if not isinstance(frame, list):
            return [frame]
        if len(frame) > wire.BATCH_MAX:
            self._refuse_array(len(frame), {"seq": frame[0].seq})
            return []
        return frame

    def _read_each(self, message: bytes, error: ApplianceError) -> list[wire.PublishFrame]:
        try:
            parts = _decode_array(message)
        except (msgspec.DecodeError, RecursionError):
            parts = []
        if not parts:
            answer_error(self._socket, error, **seq_of(message))
            return []
        if len(parts) > wire.BATCH_MAX:
            self._refuse_array(len(parts), seq_of(parts[0]))
            return []
        frames = []
        for part in parts:
            try:
                frames.append(decode_json(_decode_publish, part, "the frame"))
            except ApplianceError as problem:
                answer_error(self._socket, problem, **seq_of(part))
        return frames

    def _handle(self, frame: wire.PublishFrame) -> None:
        try:
            if self._stream is None or self._stream.name != frame.to:
                self._insert()
                self._stream = self._courier.open_stream(self._who, ENQUEUE, frame.to)
            self._pending.append(parse(frame.envelope, frame.to))
            self._seqs.append(frame.seq)
        except ApplianceError as error:
            answer_error(self._socket, error, seq=frame.seq)

    def _insert(self) -> None:
        """Enqueue what was read together for one stream; if it is refused, message by message."""
        parsed, seqs, starts = self._pending, self._seqs, self._starts
        self._pending, self._seqs, self._starts = [], [], []
        if parsed and self._stream is not None:
            self._put(self._stream, parsed, seqs, starts)

    def _put(
        self,
        stream: Stream,
        parsed: Sequence[ParsedEnvelope],
        seqs: Sequence[int],
        starts: Sequence[int],
    ) -> None:
        """Enqueue all envelopes, or else the parts that begin at `starts`. Only a full stream
        takes a part of an array; otherwise an array gets one error."""
        count = len(parsed)
        try:
            self._charge(count)
            self._courier.enqueue_parsed(self._who, stream, parsed)
            self._accepted = seqs[-1]
        except ApplianceError as error:
            bounds = sorted({0, *starts, count})
            if len(bounds) == 2 and isinstance(error, wire.StreamFull):
                bounds = list(range(count + 1))
            if len(bounds) == 2 or not isinstance(error, Exhausted):
                more = {"count": count} if count > 1 else {}
                answer_error(self._socket, error, seq=seqs[0], **more)
                return
            for start, end in pairwise(bounds):
                self._put(stream, parsed[start:end], seqs[start:end], ())

    def _refuse_array(self, count: int, first: dict[str, int]) -> None:
        """Send one error for an array beyond the limit. Nothing is enqueued."""
        limit = wire.BATCH_MAX
        error = Invalid(
            f"more than {limit} envelopes in an array", hint=f"send at most {limit} in one array"
        )
        answer_error(self._socket, error, **first, count=count, limit=limit)


def count_fitting(items: Sequence[StreamItem], bytes_max: int) -> int:
    """Return how many deliveries fit into one write; at least one, if there are any."""
    size = 0
    for count, item in enumerate(items[:WRITE_MAX]):
        size += len(item.body)
        if size > bytes_max:
            return max(count, 1)
    return min(len(items), WRITE_MAX)


def delivery_frames(items: Sequence[StreamItem]) -> bytes:
    """Make a frame for each delivery, joined."""
    frames = []
    for item in items:
        if item.attempts > 1:
            frame = b'{"deliver":%b,"attempt":%d}' % (item.body, item.attempts)
        else:
            frame = b'{"deliver":%b}' % item.body
        frames.append(text_frame(frame))
    return b"".join(frames)


def batch_frames(items: Sequence[StreamItem], limit: int) -> bytes:
    """Make frames with up to `limit` deliveries each, joined."""
    return b"".join(
        text_frame(batch_frame(items[at : at + limit])) for at in range(0, len(items), limit)
    )


def batch_frame(items: Sequence[StreamItem]) -> bytes:
    envelopes = b",".join([item.body for item in items])
    attempts = [item.attempts for item in items]
    if max(attempts) == 1:
        return b'{"deliver":[%b]}' % envelopes
    return b'{"deliver":[%b],"attempts":%b}' % (envelopes, encode(attempts))


def seq_of(part: bytes | msgspec.Raw) -> dict[str, int]:
    """Return an invalid frame's `seq`, if it is readable."""
    try:
        seq = _decode_sequence(part).seq
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {} if seq is UNSET else {"seq": seq}


def as_list(ids: str | list[str]) -> list[str]:
    return [ids] if isinstance(ids, str) else ids


def answer_error(socket: Socket, error: ApplianceError, **more: Any) -> None:
    socket.answer(error_frame(error, **more))


def error_frame(error: ApplianceError, **more: Any) -> bytes:
    frame = wire.error_body(error, **more)
    metrics.errors.labels(str(frame["code"])).inc()
    return text_frame(encode({"error": frame}))
