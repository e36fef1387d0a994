"""A served hub as a client and as an operator see it: HTTP with all its headers, rows, log."""

import http.client
import json
import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.database_files import read
from tests.support.hubprocess import HubProcess


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Client:
    """One HTTP connection that is kept open. Not for several threads at once."""

    def __init__(self, port: int, token: str | None) -> None:
        self.token = token
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send `body` as JSON, or `raw` as it is; a header given as "" is left out."""
        if raw is None and body is not None:
            raw = json.dumps(body).encode()
        sent = {} if raw is None else {"Content-Type": "application/json"}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        sent.update(headers or {})
        sent = {name: value for name, value in sent.items() if value != ""}
        self._leave_what_the_server_closed()
        self.connection.request(method, path, raw, sent)
        reply = self.connection.getresponse()
        headers_ = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, headers_, reply.read())

    def _leave_what_the_server_closed(self) -> None:
        """A connection idle for longer than `KEEP_ALIVE_SECONDS` has ended: take another."""
        sock = self.connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self.connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self("PATCH", path, body, **more)

    def close(self) -> None:
        self.connection.close()


class ServedHub(HubProcess):
    """One server process after another in one workspace."""

    def __init__(self, workspace: Path, *flags: str, settings: str = "") -> None:
        super().__init__(workspace, *flags)
        self._client: Client | None = None
        if settings:
            self.datadir.settings_file.write_text(settings)

    def _end(self, number: int) -> int:
        self._client = None
        return super()._end(number)

    # -- what is known of it -------------------------------------------------------------

    @property
    def port(self) -> int:
        return int((self.datadir.dir / "port").read_text())

    @property
    def log_text(self) -> str:
        """Everything it wrote to its log and to standard error."""
        return self.log.read_text()

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        """Straight from the database file, as another program would read it."""
        return read(self.datadir.database("hub"), sql, *parameters)

    # -- talking to it ---------------------------------------------------------------------

    @property
    def http(self) -> Client:
        """The connection of the test's own thread."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, token: str | None = "") -> Client:
        """A connection with the workspace's token, another, or none (None)."""
        return Client(self.port, self.token if token == "" else token)

    def channel(self, name: str) -> str:
        return str(self.made(self.http.post("/api/v1/channels", {"name": name}))["channel"]["id"])

    def topic(self, channel_id: str, title: str = "t") -> str:
        command = {"channel_id": channel_id, "title": title}
        return str(self.made(self.http.post("/api/v1/topics", command))["topic"]["id"])

    def channel_with_topic(self, name: str) -> tuple[str, str]:
        """A new channel with one topic: their ids."""
        channel_id = self.channel(name)
        return channel_id, self.topic(channel_id)

    def send(self, topic_id: str, content: str = "hello", client: Client | None = None) -> Any:
        """A message; the body of the reply."""
        command = {"topic_id": topic_id, "sender": "tester", "content_raw": content}
        return self.made((client or self.http).post("/api/v1/messages", command))

    def send_many(self, topic_id: str, contents: list[str], batch_max: int = 500) -> list[Any]:
        """Messages in batches of at most `most`; the results in order."""
        results = []
        for start in range(0, len(contents), batch_max):
            messages = [
                {"topic_id": topic_id, "sender": "tester", "content_raw": content}
                for content in contents[start : start + batch_max]
            ]
            answer = self.http.post("/api/v1/messages/batch", {"messages": messages})
            assert answer.status == 200, answer
            results += answer.body["results"]
        return results

    @property
    def head(self) -> int:
        return int(self.rows("SELECT coalesce(max(event_id), 0) FROM events")[0][0])

    @staticmethod
    def made(answer: Answer) -> Any:
        assert answer.status == 201, answer
        return answer.body


@contextmanager
def serve(
    workspace: Path,
    *flags: str,
    settings: str = "",
    limits: bool = False,
    probe: str = "/-/ready",
    constants: Mapping[str, Any] = MappingProxyType({}),
    **env: str,
) -> Iterator[ServedHub]:
    """A server that runs while the block does, without rate limits unless asked for. It starts
    when `probe` is answered with 200. `constants` of the code have other values in it."""
    flags = flags if limits else (*flags, "--no-limits")
    hub = ServedHub(workspace, *flags, settings=settings)
    hub.environment = env
    hub.constants = dict(constants)
    hub.probe = probe
    with hub.running():
        yield hub
