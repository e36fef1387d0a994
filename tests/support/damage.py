"""A workspace whose stores the product has filled, and what can happen to a file."""

import io
import random
from collections.abc import Callable
from pathlib import Path

from appliance.kernel.log import Log
from appliance.outbox import wire
from appliance.recovery.engine import RecoveryReport, recover
from appliance.recovery.pages import INDEX_LEAF, TABLE_LEAF, PageFile
from appliance.workspace.datadir import DataDir
from tests.doctor.conversation import converse
from tests.doctor.workspace import WorkspaceFixture
from tests.support import database_files
from tests.support.broker import BrokerFixture, key
from tests.support.clock import FakeClock
from tests.support.database_files import PAGE_BYTES, execute
from tests.support.inbox import InboxFixture, push
from tests.support.outbox import OutboxFixture

STORES = ("hub", "broker", "inbox", "outbox")
LOG = Log(io.BytesIO())


def fill(workspace: Path) -> None:
    """Hundreds of rows in each store, written by the subsystems themselves."""
    converse(WorkspaceFixture(workspace), count=200)
    datadir = DataDir(workspace)
    outbox = OutboxFixture(datadir.database("outbox"))
    for start in range(0, 300, 100):
        outbox.service.send_many(
            [
                wire.Send("#a", f"text {n} " * 9, client_message_id=f"k{n:03}-{'long-' * 8}")
                for n in range(start, start + 100)
            ]
        )
    outbox.round()
    outbox.store.close()
    broker = BrokerFixture(datadir.dir)
    for number in range(300):
        broker.send(f"c{number:03}-{'long-' * 8}", f"body {number} " * 20,
                    meta={"mentions": [key("bert")]})  # fmt: skip
    broker.close()
    inbox = InboxFixture(workspace)
    inbox.service.receive_many([push(n, body=f"{n} " * 200) for n in range(1, 201)], "link")
    inbox.close()


def recovered(datadir: DataDir, store: str) -> RecoveryReport:
    return recover(datadir, store, FakeClock(), LOG, replace=True)


def pages(database: Path) -> PageFile:
    stored = database.read_bytes()
    return PageFile(lambda at, length: stored[at : at + length], len(stored))


def leaves_of(database: Path, name: str) -> list[int]:
    """The last pages of a table or an index, in key order."""
    ((root,),) = execute(database, "SELECT rootpage FROM sqlite_schema WHERE name = ?", name)
    file = pages(database)
    numbers, whole = file.tree(root)
    assert whole
    return [page for page in numbers if file.kind(page) in (TABLE_LEAF, INDEX_LEAF)]


def overwrite(database: Path, page: int, content: bytes = b"\xa5" * PAGE_BYTES) -> None:
    database_files.overwrite(database, (page - 1) * PAGE_BYTES, content)


def resize(database: Path, size: int) -> None:
    with database.open("r+b") as file:
        file.truncate(size)


def leaf_of(table: str) -> Callable[[Path], None]:
    """The middle page of a table is garbage."""

    def damage(database: Path) -> None:
        leaves = leaves_of(database, table)
        overwrite(database, leaves[len(leaves) // 2])

    damage.__name__ = f"leaf_of_{table}"
    return damage


def one_page(database: Path) -> None:
    resize(database, PAGE_BYTES)


def random_bytes(database: Path) -> None:
    database.write_bytes(random.Random(1).randbytes(database.stat().st_size))


def cut_in_the_middle(database: Path) -> None:
    resize(database, database.stat().st_size // 2)


def first_page_zeroed(database: Path) -> None:
    overwrite(database, 1, bytes(PAGE_BYTES))


def other_page_size(database: Path) -> None:
    database_files.overwrite(database, 16, (512).to_bytes(2))
