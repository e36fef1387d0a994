"""Sends envelopes over one socket, within the appliance's limits."""

import time
from collections.abc import Iterable
from itertools import islice

import msgspec

from appliance.sdk.closing import Closing
from appliance.sdk.courier_frames import (
    Env,
    EnvelopeRefused,
    ErrorFrame,
    Locate,
    backoff_seconds,
    read_frame,
)
from appliance.sdk.discovery import HubNotRunning, StaleServerFile
from appliance.sdk.websocket import SocketBroken, WebSocket

ANSWER_SECONDS_MAX = 30.0
FRAME_ENVELOPES = 100  # a connection's default rate limit, for a second
FRAME_BYTES_MAX = 200 * 1024
WAIT_SECONDS_MAX = 30.0  # for a limit, without anything accepted meanwhile
REFUSED_MAX = 1_000  # refused envelopes until an error is raised

_encode = msgspec.json.Encoder().encode


class Producer(Closing):
    """Sends over one socket, in order. Not thread-safe.

    `send` waits for the response. `post` collects envelopes and sends 100 together, and `flush`
    sends the rest. After a broken connection, envelopes without a response are sent again; their
    ids prevent duplicates. An envelope that meets a limit (429, 503) is sent again after the time
    that the appliance asks for.
    """

    def __init__(self, locate: Locate, *, attempts_max: int = 6) -> None:
        self._locate = locate
        self._attempts_max = attempts_max
        self._link: WebSocket | None = None
        self._seq = 0
        self._posted: list[tuple[str, bytes]] = []  # ids, and frames without their `seq`
        self._bytes = 0
        self._accepted_count = 0  # since the last flush
        self._refused: list[EnvelopeRefused] = []

    def send(self, to: str, env: Env) -> str:
        """Send one envelope and return its id. Raises EnvelopeRefused."""
        self.post(to, env)
        self.flush()
        return str(env["id"])

    def send_many(self, to: str, envelopes: Iterable[Env]) -> int:
        """Send envelopes and return their number. Raises EnvelopeRefused at the end, or after
        REFUSED_MAX refusals, with the refused ones in `details.refused`. All others before the
        last refused one were accepted."""
        count = 0
        for env in envelopes:
            self.post(to, env)
            count += 1
        self.flush()
        return count

    def post(self, to: str, env: Env) -> None:
        fields = _encode({"to": to, "envelope": env})[1:]
        if len(self._posted) >= FRAME_ENVELOPES or self._bytes + len(fields) > FRAME_BYTES_MAX:
            self._send_posted()
        self._posted.append((str(env["id"]), fields))
        self._bytes += len(fields)

    def flush(self) -> None:
        """Wait for all responses. Raises the first rejection, which lists all rejections."""
        self._send_posted()
        self._report()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _report(self) -> None:
        refused, accepted = self._refused, self._accepted_count
        self._refused, self._accepted_count = [], 0
        if refused:
            listed = [{**each.details, "error": each.message} for each in refused]
            refused[0].details |= {"accepted_count": accepted, "refused": listed}
            total = accepted + len(refused)
            if total > 1:
                refused[0].message = f"{len(refused)} of {total} were refused: {refused[0].message}"
            raise refused[0]

    def _send_posted(self) -> None:
        """Send until each envelope is accepted or refused."""
        attempt, deadline = 0, time.monotonic() + WAIT_SECONDS_MAX
        while self._posted:
            count = len(self._posted)
            try:
                wait_seconds = self._exchange(deadline)
            except (SocketBroken, HubNotRunning, StaleServerFile) as error:
                self.close()
                attempt += 1
                if attempt >= self._attempts_max:
                    unconfirmed = [id_ for id_, _ in self._posted]
                    accepted = {"accepted_count": self._accepted_count}
                    error.details |= {**accepted, "unconfirmed": unconfirmed}
                    raise
                wait_seconds = backoff_seconds(attempt)
            if len(self._posted) < count:
                attempt, deadline = 0, time.monotonic() + WAIT_SECONDS_MAX
            if self._posted:
                time.sleep(wait_seconds)  # the server's requested delay, or a backoff
        self._bytes = 0
        if len(self._refused) >= REFUSED_MAX:
            self._report()

    def _exchange(self, deadline: float) -> float:
        """Send all in one frame, keep limited items, and return the seconds to wait."""
        link = self._link = self._link or WebSocket(self._locate(), "/v1/publish")
        waiting = dict(enumerate(self._posted, self._seq + 1))
        self._seq += len(waiting)
        frames = [b'{"seq":%d,%b' % (seq, fields) for seq, (_, fields) in waiting.items()]
        link.send(frames[0] if len(frames) == 1 else b"[" + b",".join(frames) + b"]")
        limited: dict[int, tuple[str, bytes]] = {}
        errors: list[EnvelopeRefused] = []
        wait_seconds = 0.0
        while waiting:
            messages = link.receive(ANSWER_SECONDS_MAX)
            if not messages:
                raise SocketBroken("the appliance does not respond")
            for frame in map(read_frame, messages):
                for seq in select_answered(waiting, frame.error, frame.accepted):
                    posted = waiting.pop(seq)
                    if frame.error is None:
                        continue
                    after = frame.error.retry_after
                    if after is not None and time.monotonic() + after < deadline:
                        limited[seq], wait_seconds = posted, max(wait_seconds, after)
                    else:
                        errors.append(EnvelopeRefused(frame.error, posted[0]))
        self._accepted_count += len(self._posted) - len(limited) - len(errors)
        self._posted = [limited[seq] for seq in sorted(limited)]
        self._refused += errors
        return wait_seconds


def select_answered(
    waiting: Iterable[int], error: ErrorFrame | None, accepted: int | None
) -> list[int]:
    """Select the numbers that a response answers. Raises EnvelopeRefused for a whole frame."""
    if error is None:
        return [seq for seq in waiting if accepted is not None and seq <= accepted]
    first = error.seq
    if first is None:
        raise EnvelopeRefused(error)
    return list(islice((seq for seq in waiting if seq >= first), error.count))
