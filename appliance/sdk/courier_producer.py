"""Sending envelopes over one socket, within the limits of the appliance."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

import msgspec

from appliance.kernel.errors import ApplianceError
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
WINDOW_MAX = 5_000
FRAME_ENVELOPES = 100  # the default rate limit of a connection, for a second
FRAME_BYTES_MAX = 200 * 1024
WAIT_SECONDS_MAX = 30.0  # for a limit, without anything accepted meanwhile
REFUSED_MAX = 1_000  # refused envelopes that an error lists

_encode = msgspec.json.Encoder().encode


class Posted(NamedTuple):
    order: int
    id: str
    fields: bytes  # the frame's fields without `seq`


class Producer(Closing):
    """Sends over one socket. Not thread-safe.

    `send` waits for the response. `post` does not: up to `window` envelopes may be without a
    response, and `flush` waits for all. After a broken connection, envelopes without a response
    are sent again; their ids prevent duplicates. An envelope that meets a limit (429, 503) is sent
    again after the time that the appliance asks for, so it can arrive after later ones.
    """

    def __init__(self, locate: Locate, *, window: int = 1_000, attempts_max: int = 6) -> None:
        self._locate = locate
        self._window = min(window, WINDOW_MAX)
        self._attempts_max = attempts_max
        self._link: WebSocket | None = None
        self._posted_count = 0
        self._seq = 0
        self._unsent: deque[Posted] = deque()
        self._unsent_bytes = 0
        self._waiting: dict[int, Posted] = {}  # by `seq`: sent, without a response
        self._retry_at = 0.0
        self._limited_since: float | None = None  # a limit was met, and nothing accepted since
        self._paced = False  # one frame at a time, since a limit was met
        self._accepted_count = 0  # since the last flush
        self._refused_count = 0
        self._refused: list[EnvelopeRefused] = []

    def send(self, to: str, env: Env) -> str:
        """Send one envelope and return its id. Raises EnvelopeRefused."""
        self.post(to, env)
        self.flush()
        return str(env["id"])

    def send_many(self, to: str, envelopes: Iterable[Env]) -> int:
        """Send envelopes and return their number. Raises EnvelopeRefused after all were sent, with
        the refused ones in `details.refused`; all others were accepted."""
        count = 0
        for env in envelopes:
            self.post(to, env)
            count += 1
        self.flush()
        return count

    def post(self, to: str, env: Env) -> None:
        fields = _encode({"to": to, "envelope": env})[1:]
        self._posted_count += 1
        self._unsent.append(Posted(self._posted_count, str(env["id"]), fields))
        self._unsent_bytes += len(fields)
        if len(self._unsent) >= FRAME_ENVELOPES or self._unsent_bytes > FRAME_BYTES_MAX // 2:
            self._insist(self._push)
        while len(self._waiting) + len(self._unsent) >= self._window:
            self._insist(self._pull)

    def flush(self) -> None:
        """Wait for all responses. Raises the first rejection, which lists all of them."""
        while self._waiting or self._unsent:
            self._insist(self._pull)
        refused, count, accepted = self._refused, self._refused_count, self._accepted_count
        self._refused, self._refused_count, self._accepted_count = [], 0, 0
        self._paced = False
        if refused:
            error = refused[0]
            error.details |= {
                "accepted_count": accepted,
                "refused_count": count,
                "refused": [{**each.details, "error": each.message} for each in refused],
            }
            if accepted + count > 1:
                error.message = f"{count} of {accepted + count} were refused: {error.message}"
            raise error

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connect(self) -> WebSocket:
        if self._link is None:
            self._link = WebSocket(self._locate(), "/v1/publish")
            waiting, self._waiting = self._waiting, {}
            self._send_again(list(waiting.values()))
        return self._link

    def _insist(self, step: Callable[[], None]) -> None:
        for attempt in range(1, self._attempts_max + 1):
            try:
                step()
                return
            except (SocketBroken, HubNotRunning, StaleServerFile) as error:
                self.close()
                if attempt == self._attempts_max:
                    self._report_unconfirmed(error)
                    raise
                time.sleep(backoff_seconds(attempt))

    def _report_unconfirmed(self, error: ApplianceError) -> None:
        ids = [posted.id for posted in (*self._waiting.values(), *self._unsent)]
        error.details |= {
            "accepted_count": self._accepted_count,
            "unconfirmed_count": len(ids),
            "unconfirmed": ids[:REFUSED_MAX],
        }

    def _push(self) -> None:
        link = self._connect()
        while self._unsent and not (self._paced and self._waiting):
            wait = self._retry_at - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            frames: list[bytes] = []
            size = 0
            while self._unsent and len(frames) < FRAME_ENVELOPES:
                posted = self._unsent[0]
                size += len(posted.fields)
                if frames and size > FRAME_BYTES_MAX:
                    break
                self._unsent.popleft()
                self._seq += 1
                self._waiting[self._seq] = posted
                frames.append(b'{"seq":%d,%b' % (self._seq, posted.fields))
            link.send(frames[0] if len(frames) == 1 else b"[" + b",".join(frames) + b"]")
        self._unsent_bytes = sum(len(posted.fields) for posted in self._unsent)

    def _pull(self) -> None:
        self._push()
        messages = self._connect().receive(ANSWER_SECONDS_MAX)
        if not messages:
            raise SocketBroken("the appliance does not respond")
        again: list[Posted] = []
        for message in messages:
            frame = read_frame(message)
            if frame.error is not None:
                again += self._refuse(frame.error)
            elif frame.accepted is not None:
                self._accept(frame.accepted)
        self._send_again(again)

    def _send_again(self, posted: list[Posted]) -> None:
        if posted:
            self._unsent = deque(sorted([*posted, *self._unsent]))

    def _accept(self, last: int) -> None:
        self._limited_since = None
        for seq in [seq for seq in self._waiting if seq <= last]:
            del self._waiting[seq]
            self._accepted_count += 1

    def _refuse(self, error: ErrorFrame) -> list[Posted]:
        """Record what an error frame refuses, or return it to be sent again."""
        first = error.seq
        if first is None or first not in self._waiting:
            raise EnvelopeRefused(error)
        concerned = list(islice((seq for seq in self._waiting if seq >= first), error.count))
        posted = [self._waiting.pop(seq) for seq in concerned]
        if error.retry_after is not None and self._may_wait(error.retry_after):
            return posted
        self._refused_count += len(posted)
        kept = posted[: REFUSED_MAX - len(self._refused)]
        self._refused += [EnvelopeRefused(error, each.id) for each in kept]
        return []

    def _may_wait(self, seconds: float) -> bool:
        now = time.monotonic()
        if self._limited_since is None:
            self._limited_since = now
        if now + seconds - self._limited_since > WAIT_SECONDS_MAX:
            return False
        self._paced = True
        self._retry_at = max(self._retry_at, now + seconds)
        return True
