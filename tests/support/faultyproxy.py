"""A proxy between two appliances that loses, delays, repeats and garbles what passes, by a plan.

HTTP exchanges and WebSocket frames each draw their faults from a shuffled deck: a seed says in
which order, and every kind comes again and again. Each exchange has an upstream connection of its
own, so that a request can be made twice.
"""

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO

SECONDS_MAX = 30.0  # until a silent peer is given up
DELAY_SECONDS = 0.15
PAGE = b"<html><body>Sign in to this network</body></html>"
NONE = "none"

EXCHANGES = (
    "closed before the request",
    "half of the request",
    "request garbled",
    "delayed",
    "requested twice",
    "requested twice at once",
    "answer lost",
    "half of the answer",
    "answer garbled",
    "answer held back",
    "busy",
    "a page of somebody else",
)
TO_CLIENT, TO_SERVER = "to client", "to server"
_FRAMES = ("closed before", "closed within", "closed behind", "delayed", "said twice")
FRAMES = tuple(f"{way}: {fault}" for way in (TO_CLIENT, TO_SERVER) for fault in _FRAMES)
FOREIGN = ("200 OK", "302 Found", "403 Forbidden", "404 Not Found", "413 Too Large", "502 Bad")


class Deck:
    """Kinds in a shuffled order, again and again; `calm` of them nothing."""

    def __init__(self, kinds: tuple[str, ...], faultless_draws: int, seed: object) -> None:
        self._cards = [*kinds, *[NONE] * faultless_draws]
        self._chance = random.Random(str(seed))
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            self._left = self._cards[:]
            self._chance.shuffle(self._left)
        return self._left.pop()

    def pick(self, choices: tuple[str, ...]) -> str:
        return self._chance.choice(choices)


class Plan:
    """What goes wrong next; `drawn` counts what went wrong. Quiet until `faulty` is set."""

    def __init__(self, seed: object, *, exchanges: int = 12, frames: int = 25) -> None:
        """`exchanges`, `frames`: how many of them pass for one round of all faults."""
        self.faulty = False
        self.drawn: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._exchanges = Deck(EXCHANGES, exchanges, f"{seed} exchanges")
        self._frames = {
            way: Deck(_FRAMES, frames, f"{seed} {way}") for way in (TO_CLIENT, TO_SERVER)
        }

    def exchange(self) -> str:
        return self._draw(self._exchanges, "")

    def frame(self, way: str) -> str:
        return self._draw(self._frames[way], f"{way}: ")

    def page(self) -> str:
        with self._lock:
            return self._exchanges.pick(FOREIGN)

    def _draw(self, deck: Deck, prefix: str) -> str:
        if not self.faulty:
            return NONE
        with self._lock:
            fault = deck.draw()
            self.drawn[prefix + fault] += 1
        return fault

    def was_everything(self, kinds: Iterable[str]) -> bool:
        """Whether each of `kinds` has come at least once."""
        return all(self.drawn[kind] for kind in kinds)


class FaultyProxy:
    """Listens on a port of 127.0.0.1 and passes on to `upstream_port()`, whoever is there."""

    def __init__(self, upstream_port: Callable[[], int], plan: Plan) -> None:
        self.plan = plan
        self.failures: list[BaseException] = []
        self._upstream_port = upstream_port
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(SECONDS_MAX)
        try:
            with closing(client), client.makefile("rb") as stream:
                while (head := read_head(stream)) is not None:
                    if b"\r\nupgrade: websocket" in head.lower():
                        self._link(client, stream, head)
                        return
                    if not self._exchange(client, head, read_body(stream, head)):
                        return
        except (OSError, EOFError):
            return  # one side is gone
        except BaseException as failure:
            self.failures.append(failure)

    # -- requests ----------------------------------------------------------------------------

    def _exchange(self, client: socket.socket, head: bytes, body: bytes) -> bool:
        """One request and its answer; False when the connection is over."""
        fault, request = self.plan.exchange(), head + body
        if fault == "closed before the request":
            return False
        if fault == "half of the request":
            with closing(self._dial()) as upstream:
                upstream.sendall(request[: len(request) * 2 // 3])
            return False
        if fault in ("busy", "a page of somebody else"):
            status = "503 Busy" if fault == "busy" else self.plan.page()
            client.sendall(own_answer(status))
            return True
        if fault == "request garbled":
            request = head + body[:-9] + bytes(byte ^ 1 for byte in body[-9:])
        if fault == "delayed":
            self._ended.wait(DELAY_SECONDS)
        answer = self._twice(request, fault) if "twice" in fault else self._ask(request)
        return self._answer(client, answer, fault)

    def _answer(self, client: socket.socket, answer: bytes, fault: str) -> bool:
        """The broker has done its part; the sender may not learn of it."""
        if fault == "answer lost":
            return False
        if fault == "half of the answer":
            client.sendall(answer[: len(answer) // 2])
            return False
        if fault == "answer held back":
            client.recv(1)  # until the sender has had enough
            return False
        if fault == "answer garbled":
            answer = answer[:-20] + b"\xff" * 20
        client.sendall(answer)
        return True

    def _twice(self, request: bytes, fault: str) -> bytes:
        """The same bytes asked for two times, one after the other or together; one answer."""
        answers: list[bytes] = []

        def ask() -> None:
            with suppress(OSError, EOFError):
                answers.append(self._ask(request))

        both = [threading.Thread(target=ask) for _ in range(2)]
        for thread in both:
            thread.start()
            if fault == "requested twice":
                thread.join()
        for thread in both:
            thread.join()
        if not answers:
            raise EOFError
        return answers[-1]

    def _ask(self, request: bytes) -> bytes:
        """The answer to one request on a connection of its own."""
        with closing(self._dial()) as upstream, upstream.makefile("rb") as stream:
            upstream.sendall(request)
            head = read_head(stream)
            if head is None:
                raise EOFError
            return head + read_body(stream, head)

    def _dial(self) -> socket.socket:
        upstream = socket.create_connection(("127.0.0.1", self._upstream_port()), SECONDS_MAX)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return upstream

    # -- sockets -----------------------------------------------------------------------------

    def _link(self, client: socket.socket, stream: BinaryIO, head: bytes) -> None:
        """Frame by frame, both ways, until one side or the plan ends it."""
        with closing(self._dial()) as upstream, upstream.makefile("rb") as received:
            upstream.sendall(head)
            answer = read_head(received)
            if answer is None:
                return
            client.sendall(answer)
            ends = (client, upstream)
            back = threading.Thread(
                target=self._pump, args=(received, client, TO_CLIENT, ends), daemon=True
            )
            back.start()
            self._pump(stream, upstream, TO_SERVER, ends)
            back.join()

    def _pump(
        self, source: BinaryIO, sink: socket.socket, way: str, ends: tuple[socket.socket, ...]
    ) -> None:
        try:
            while (frame := read_frame(source)) is not None and self._pass_on(frame, sink, way):
                pass
        except (OSError, EOFError, ValueError):
            pass  # one side is gone, or the other direction has ended both
        finally:
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, frame: bytes, sink: socket.socket, way: str) -> bool:
        fault = self.plan.frame(way)
        if fault == "closed before":
            return False
        if fault == "closed within":
            sink.sendall(frame[: max(1, len(frame) // 2)])
            return False
        if fault == "delayed":
            self._ended.wait(DELAY_SECONDS)
        sink.sendall(frame * 2 if fault == "said twice" else frame)
        return fault != "closed behind"


@contextmanager
def faulty_proxy(upstream_port: Callable[[], int], plan: Plan) -> Iterator[FaultyProxy]:
    """A proxy that runs while the block does. What broke in itself is raised at the end."""
    proxy = FaultyProxy(upstream_port, plan)
    try:
        yield proxy
    finally:
        proxy.close()
    for failure in proxy.failures:
        raise failure


def own_answer(status: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n\r\n"
    return head.encode() + PAGE


def read_head(stream: BinaryIO) -> bytes | None:
    """Up to the empty line; None where the other side had no more to say."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline(65_536)
        if not line:
            return None
        head += line
    return head


def read_body(stream: BinaryIO, head: bytes) -> bytes:
    size = next(
        (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    return exactly(stream, size)


def read_frame(stream: BinaryIO) -> bytes | None:
    """One WebSocket frame as it stands, mask and all."""
    start = stream.read(2)
    if len(start) < 2:
        return None
    size, more = start[1] & 0x7F, b""
    if size >= 126:
        more = exactly(stream, 2 if size == 126 else 8)
        size = struct.unpack("!H" if size == 126 else "!Q", more)[0]
    return start + more + exactly(stream, size + (4 if start[1] & 0x80 else 0))


def exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
