"""A workspace that tests damage, and the doctor's context for it."""

import io
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from appliance.checks.check import COMMON_PROBLEMS, Check, Finding
from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir, WriterLock
from appliance.workspace.schema import create_workspace
from doctor.all_checks import CHECKS
from doctor.live import facts
from doctor.run import CheckOutcome, examine, is_ready, readiness, run_check
from tests.migrations.store_file import catch_up
from tests.support.database_files import execute

NOW = "2026-01-01T00:00:00.000Z"
_EVENT = (
    "INSERT INTO events (event_id, ts, name, scope_channel_id, entity_type, entity_id, data_json)"
    " VALUES (?, ?, 'message.created', ?, 'message', ?, '{}')"
)
HEALTHY_STORE = {
    "writer_alive": 1.0,
    "suspect": 0.0,
    "writing_paused": 0.0,
    "queue_jobs": 3.0,
    "stalled_seconds": 0.01,
    "stalled_seconds_max": 5.0,
}
HEALTHY_COURIER = {"streams": 7.0, "full": 0.0, "oldest_ready_seconds": 3500.0}


class WorkspaceFixture:
    """A complete workspace; each test damages one thing."""

    def __init__(self, workspace: Path, settings: DoctorSettings | None = None) -> None:
        self.data = DataDir(workspace)
        self.settings = settings or DoctorSettings()
        self.live: dict[str, float] | None = None
        self.lock: WriterLock | None = None
        self.start()

    def start(self) -> None:
        """What a starting hub does to the workspace."""
        create_workspace(self.data, clock=SystemClock(), log=Log(io.BytesIO()), locked=True)

    def index(self) -> None:
        """Index all messages, as the hub does in the background."""
        with closing(sqlite3.connect(self.data.database("hub"))) as connection, connection:
            catch_up(connection)

    def context(self, **more: object) -> Context:
        return Context(self.data, self.settings, SystemClock(), live=self.live, **more)  # type: ignore[arg-type]

    def find(self, name: str) -> list[Finding]:
        with self.context() as context:
            outcome = run_check(context, check(name))
        assert_declared(outcome)
        return list(outcome.findings)

    def find_all(self) -> list[Finding]:
        with self.context() as context:
            outcomes = examine(context, CHECKS)
        for outcome in outcomes:
            assert_declared(outcome)
        return [finding for outcome in outcomes for finding in outcome.findings]

    def execute(
        self, sql: str, *parameters: object, store: str = "hub"
    ) -> list[tuple[object, ...]]:
        return execute(self.data.database(store), sql, *parameters)

    def talk(self, count: int = 3) -> None:
        """Messages and their events, as the hub writes them."""
        path = self.data.database("hub")
        with closing(sqlite3.connect(path)) as connection, connection:
            execute = connection.execute
            execute("INSERT OR IGNORE INTO channels VALUES ('ch_1', 'general', NULL, ?)", (NOW,))
            execute("INSERT OR IGNORE INTO topics VALUES ('t_1', 'ch_1', 'one', ?, ?)", (NOW, NOW))
            (done,) = execute("SELECT count(*) FROM messages").fetchone()
            for number in range(done, done + count):
                execute(
                    "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw,"
                    " created_at) VALUES (?, 't_1', 'ch_1', 'me', 'hello', ?)",
                    (f"m{number:06}", NOW),
                )
                execute(_EVENT, (None, NOW, "ch_1", f"m{number:06}"))

    def event(self, entity: str, event_id: int | None = None, scope: str | None = "ch_1") -> None:
        self.execute(_EVENT, event_id, NOW, scope, entity)

    @contextmanager
    def running(
        self,
        store: Mapping[str, float] = HEALTHY_STORE,
        courier: Mapping[str, float] = HEALTHY_COURIER,
        **more: object,
    ) -> Iterator[None]:
        """Simulates a running hub: lock held, server.json written, facts available."""
        self.lock = WriterLock(self.data, "instance-1")
        self.lock.acquire()
        self.announce()
        numbers = {"loop_delay_seconds": 0.002, "lock_intact": True, **more}
        parts = {"hub": store, "auth": HEALTHY_STORE, "courier": courier}
        self.live = facts(parts, **numbers)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self.live = None
            self.lock.release()

    def announce(self, **other: object) -> None:
        ((db_id,),) = self.execute("SELECT value FROM meta WHERE key = 'db_id'")
        server = {"instance_id": "instance-1", "db_id": db_id, "port": 1, "pid": 1, **other}
        self.data.write_private(self.data.server_file, msgspec.json.encode(server).decode())


def assert_declared(outcome: CheckOutcome) -> None:
    """Every finding names a problem that its check declares, so that its page describes it."""
    own = {problem.name for problem in check(outcome.check).problems} | {*COMMON_PROBLEMS}
    assert {finding.problem for finding in outcome.findings} - own == set(), outcome.check


def check(name: str) -> Check:
    return next(each for each in CHECKS if each.name == name)


def ready_body(context: Context, instance_id: str) -> dict[str, object]:
    """The body of `/-/ready` for callers that may see details."""
    findings = readiness(context)
    return {
        "status": "ready" if is_ready(findings) else "not ready",
        "instance_id": instance_id,
        "findings": msgspec.to_builtins(findings),
        "facts": dict(context.live or {}),
    }
