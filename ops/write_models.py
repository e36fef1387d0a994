"""Writes `model.py` and `rows.py` of each store's package from the migrations: every table as a
peewee model, and its row as a tuple that needs no peewee. And the names of the exported logs for
the Spark jobs, which have nothing else of the appliance.

The files in `migrations/` are the truth; a test compares. Run it after a change: `just models`.
"""

import io
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from appliance.export.logs import LOGS
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.schema import migrate
from ops import generated
from ops.size import GENERATED

KERNEL = {"meta", "x_migrations", "x_idempotency"}  # tables of every store, without models
# The class of each table. Tokens have none: `agentlip token` runs without peewee.
CLASSES = {
    "broker": {
        "client_message_dedupe": "Dedupe", "delivery_queue": "QueuedDelivery", "log": "BrokerLog",
        "member": "Member", "mention_index": "Mention", "mesh": "Mesh",
        "message_history": "History", "message_queue": "QueuedMessage",
        "message_tombstone": "Tombstone", "place": "Destination",
        "subscription": "DestinationSubscription", "topic_message": "TopicMessage",
        "used_nonce": "UsedNonce", "webhook": "Webhook",
    },
    "courier": {
        "acked": "Acked", "attempts": "Attempt", "journal": "Envelope", "latest": "Latest",
        "log": "CourierLog", "paused": "Paused",
    },
    "hub": {
        "channels": "Channel", "enrichments": "Enrichment", "events": "Event",
        "messages": "Message", "topic_attachments": "Attachment", "topics": "Topic",
        "x_asks": "Ask", "x_cjk": "IndexedPairs",
        "x_cjk_changed": "ChangedPairs",
        "x_enrichment_sets": "EnrichmentSet", "x_fts": "Indexed",
        "x_message_principals": "MessagePrincipal", "x_plugin_cursors": "PluginCursor",
        "x_webhooks": "EventWebhook",
    },
    "inbox": {
        "hook_runs": "HookRun", "inbox": "ReceivedMessage", "profiles": "Profile",
        "revoked": "Revoked", "topics": "SubscribedTopic",
    },
    "jobs": {
        "attempts": "StoredAttempt", "jobs": "StoredJob", "log": "StoredRunEvent",
        "runs": "StoredRun",
    },
    "outbox": {"log": "OutboxLog", "outbox": "Send"},
    "relay": {
        "admins": "RelayAdmin", "agents": "Agent", "approvals": "Approval",
        "broadcasts": "Broadcast",
        "contact_events": "ContactEvent", "contacts": "Contact", "log": "RelayLog",
        "used_signature": "UsedSignature", "v1_messages": "V1StoredMessage",
        "verifications": "EmailVerification",
    },
}  # fmt: skip
FIELDS = {"INTEGER": "Integer", "TEXT": "Text", "BLOB": "Blob", "REAL": "Double"}
TYPES = {"INTEGER": "int", "TEXT": "str", "BLOB": "bytes", "REAL": "float"}
LOGS_FILE = '''"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal[{0}]
LOGS = ({0})
'''
_ONE_OF = re.compile(r"(\w+) TEXT [^,]*?CHECK \(\1 IN \(([^)]*)\)\)")


class Column(NamedTuple):
    """`values`: the texts that its CHECK permits, as they are in the SQL; "" for any."""

    name: str
    type: str
    is_null: bool
    in_key: int
    values: str


def render() -> dict[str, str]:
    """The text of each file, by its path from the root of the tree."""
    kinds = ", ".join(f'"{kind}"' for kind in LOGS)
    files = {"appliance/shared/exported_logs.py": LOGS_FILE.format(kinds)}
    with tempfile.TemporaryDirectory() as folder:
        for store, classes in CLASSES.items():
            path = Path(folder) / store
            migrate(path, store, clock=SystemClock(), log=Log(io.BytesIO()))
            with closing(sqlite3.connect(path)) as connection:
                tables = read_tables(connection)
            if tables.keys() != classes.keys():
                raise SystemExit(f"{store}: CLASSES differs from {sorted(tables)}")
            named = {classes[table]: (table, columns) for table, columns in tables.items()}
            files[f"appliance/{store}/model.py"] = models(store, named)
            files[f"appliance/{store}/rows.py"] = rows(store, named)
    return files


def read_tables(connection: sqlite3.Connection) -> dict[str, list[Column]]:
    """The columns of each table in the order of names, without those of search indexes."""
    listed = connection.execute("PRAGMA main.table_list").fetchall()
    names = {row[1] for row in listed if row[2] == "table" and not row[1].startswith("sqlite_")}
    return {name: list(_columns(connection, name)) for name in sorted(names - KERNEL)}


def _columns(connection: sqlite3.Connection, table: str) -> Iterator[Column]:
    sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    values = dict(_ONE_OF.findall(sql[0]))
    for _, name, type_, required, _, in_key in connection.execute(f"PRAGMA table_info({table})"):
        yield Column(name, type_, not required and not in_key, in_key, values.get(name, ""))


def models(store: str, tables: dict[str, tuple[str, list[Column]]]) -> str:
    lines = [
        f'{GENERATED} the migrations of the {store} by `just models`: its peewee models."""', "",
        "import peewee", "", "from appliance.kernel.model import Table", "",
    ]  # fmt: skip
    for name, (table, columns) in tables.items():
        key = [column.name for column in sorted(columns, key=lambda c: c.in_key) if column.in_key]
        lines += ["", f"class {name}(Table):"]
        for column in columns:
            options = "null=True" if column.is_null else ""
            options = "primary_key=True" if key == [column.name] else options
            lines.append(f"    {column.name} = peewee.{FIELDS[column.type]}Field({options})")
        lines += ["", "    class Meta:", f'        table_name = "{table}"']
        if len(key) > 1:
            names = ", ".join(f'"{part}"' for part in key)
            lines.append(f"        primary_key = peewee.CompositeKey({names})")
        lines.append("")
    return "\n".join(lines)


def rows(store: str, tables: dict[str, tuple[str, list[Column]]]) -> str:
    lines = []
    for name, (table, columns) in tables.items():
        lines += ["", f"class {name}Row(NamedTuple):", f'    """A row of `{table}`."""', ""]
        for column in columns:
            values = column.values.replace("'", '"')
            type_ = f"Literal[{values}]" if values else TYPES[column.type]
            lines.append(f"    {column.name}: {type_}{' | None' if column.is_null else ''}")
        lines.append("")
    text = "\n".join(lines)
    imported = "Literal, NamedTuple" if "Literal[" in text else "NamedTuple"
    head = f'{GENERATED} the migrations of the {store} by `just models`: its rows as tuples."""'
    return f"{head}\n\nfrom typing import {imported}\n\n{text}"


if __name__ == "__main__":
    sys.exit(generated.write(render()))
