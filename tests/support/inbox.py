"""An inbox on a real file, and a broker that plays a remaining over a real socket."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from appliance.identity import keys
from appliance.inbox.service import Inbox
from appliance.inbox.settings import InboxSettings
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.instance import MemberInstance
from appliance.mesh.push import Push
from appliance.mesh.signing import Signer
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from tests.support.database_files import read

OWN = keys.make("2026-02-04T20:00:00.000Z")
INSTANCE = MemberInstance("here", "/work", "boot")
ALICE = "a" * 64
BROKER_ID, NONCE = "b" * 32, "n" * 32
SUPPORTED = {
    "client_message_id_dedupe": {
        "params": {
            "version": 2,
            "mode": "retention_scoped",
            "dedupe_retention_days": 30,
            "request_fingerprint": True,
        }
    },
    "max_payload": {"params": {"version": 1, "inline_bytes": 65536, "blob_bytes": 65536}},
}


def push(number: int = 1, **changed: Any) -> Push:
    values: dict[str, Any] = {
        "message_id": f"bm_{number}", "client_message_id": f"c{number}", "mesh": "default",
        "topic": "alerts", "destination_kind": "topic", "destination_ref": "alerts",
        "sender_pubkey": ALICE, "sender_name": "alice", "priority": "next", "meta": None,
        "body": f"message {number}", "reply_to_id": None, "created_at": "2026-02-04T20:00:00.000Z",
    }  # fmt: skip
    return Push(**{**values, **changed})


class OwnKeys:
    """The keys of a member that never rotated its own."""

    def in_mesh(self, _mesh: str) -> Signer:
        return OWN

    def is_own(self, pubkey: str) -> bool:
        return pubkey == OWN.public_hex


class InboxFixture:
    """An Inbox over its store, without a server."""

    def __init__(
        self,
        workspace: Path,
        clock: Any = None,
        runner: type[BatchRunner] = BatchRunner,
        **settings: Any,
    ) -> None:
        self.clock = clock or SystemClock()
        self.lines = io.BytesIO()
        self.log = Log(self.lines, clock=self.clock)
        self.datadir = DataDir(workspace)
        self.settings = InboxSettings(**settings)
        create_workspace(self.datadir, clock=self.clock, log=self.log)
        open_store = partial(
            Store, path=self.datadir.database("inbox"), settings=StoreSettings(free_bytes_min=0),
            clock=self.clock, log=self.log, runner=runner,
        )  # fmt: skip
        brokers = {endpoint.mesh: endpoint for endpoint in self.settings.brokers}
        self.service = Inbox(open_store, self.settings, self.clock, self.log, OwnKeys(), brokers)
        self.store = self.service.store
        self.events: list[Any] = []
        self.service.add_listener(self.events.append)

    def rows(self, sql: str = "SELECT client_message_id FROM inbox ORDER BY number") -> list[Any]:
        rows = read(self.datadir.database("inbox"), sql)
        return [row[0] if len(row) == 1 else row for row in rows]

    def logged(self, message: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        return [line for line in lines if line["msg"] == message]

    def close(self) -> None:
        self.store.close()


Script = Callable[["ScriptedConnection"], None]


class ScriptedConnection:
    """One connection of the scripted broker."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.hello: dict[str, Any] = {}

    def send(self, **frame: Any) -> None:
        self.socket.send(json.dumps(frame))

    def expect(self, kind: str) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(20))
        assert frame["type"] == kind, frame
        return frame

    def handshake(self, supported: Any = SUPPORTED, missing: Any = ()) -> dict[str, Any]:
        self.expect("hello")
        self.send(type="challenge", broker_id=BROKER_ID, nonce=NONCE)
        self.hello = self.expect("hello")
        self.send(type="hello_ack", mesh=self.hello["mesh"], name="us", broker_version="9.9")
        negotiate = self.expect("negotiate")
        self.send(type="negotiated", supported=supported, missing_required=list(missing))
        return negotiate

    def push(self, sent_push: Push) -> None:
        import msgspec

        self.send(type="push", **msgspec.to_builtins(sent_push))

    def acked(self) -> list[str]:
        """What the next ack names; what else is said in between is passed over."""
        while (frame := json.loads(self.socket.recv(20)))["type"] != "client_ack":
            pass
        message_ids: list[str] = frame["message_ids"]
        return message_ids


class ScriptedBroker:
    def __init__(self, port: int) -> None:
        self.port = port
        self.failures: list[BaseException] = []
        self.connections = 0

    def endpoint(self, mesh: str = "default") -> BrokerEndpoint:
        return BrokerEndpoint(mesh=mesh, url=f"http://127.0.0.1:{self.port}")


@contextmanager
def scripted_broker(*scripts: Script) -> Iterator[ScriptedBroker]:
    """Connections play `scripts` in order, the last one forever. Failed assertions of a script
    are raised at the end."""
    remaining = list(scripts)

    def play(socket: ServerConnection) -> None:
        scripted.connections += 1
        script = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        try:
            with suppress(ConnectionClosed):
                script(ScriptedConnection(socket))
        except BaseException as failure:
            scripted.failures.append(failure)

    with serve(play, "127.0.0.1", 0) as server:
        scripted = ScriptedBroker(server.socket.getsockname()[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()
    for failure in scripted.failures:
        raise failure


def until_gone(connection: ScriptedConnection) -> None:
    """Stay until the other side hangs up."""
    with suppress(ConnectionClosed, TimeoutError):
        while True:
            connection.socket.recv(20)
