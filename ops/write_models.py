"""Writes `model.py` and `rows.py` in each store's package from the migrations: peewee models for
the tables that a listing composes with, and tuples for the rows that a module reads without
peewee. Also writes the exported logs' names for the Spark jobs, which share nothing else with
the appliance.

The files in `migrations/` are the truth; a test compares. Run it after a change: `just models`.
"""

import ast
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
from ops.generated import ROOT
from ops.size import GENERATED

# The class for each table with a model or a row. Classes that nobody imports are not written.
CLASSES = {
    "broker": {
        "client_message_dedupe": "Dedupe", "member": "Member", "mention_index": "Mention",
        "mesh": "Mesh", "message_history": "History", "message_queue": "QueuedMessage",
        "place": "Destination", "subscription": "DestinationSubscription",
        "topic_message": "TopicMessage", "used_nonce": "UsedNonce", "webhook": "Webhook",
    },
    "courier": {
        "acked": "Acked", "attempts": "Attempt", "journal": "Envelope", "latest": "Latest",
        "paused": "Paused",
    },
    "hub": {
        "channels": "Channel", "enrichments": "Enrichment", "messages": "Message",
        "topic_attachments": "Attachment", "topics": "Topic", "x_asks": "Ask",
        "x_blobs": "Blob", "x_enrichment_sets": "EnrichmentSet", "x_incoming": "Incoming",
        "x_plugin_cursors": "PluginCursor",
        "x_webhooks": "EventWebhook",
    },
    "inbox": {"hook_runs": "HookRun", "inbox": "ReceivedMessage", "profiles": "Profile"},
    "jobs": {"attempts": "StoredAttempt", "jobs": "StoredJob", "runs": "StoredRun"},
    "outbox": {"outbox": "Send"},
    "relay": {
        "admins": "RelayAdmin", "agents": "Agent", "approvals": "Approval",
        "broadcasts": "Broadcast", "contact_events": "ContactEvent", "contacts": "Contact",
        "group_changes": "GroupChange", "group_members": "GroupMember", "groups": "Group",
        "key_log": "KeyLog", "used_signature": "UsedSignature",
    },
}  # fmt: skip
LINE_MAX = 100
FIELDS = {"INTEGER": "Integer", "TEXT": "Text", "BLOB": "Blob", "REAL": "Double"}
TYPES = {"INTEGER": "int", "TEXT": "str", "BLOB": "bytes", "REAL": "float"}
LOGS_FILE = '''"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal[{0}]
LOGS = ({0})
'''
_ONE_OF = re.compile(r"(\w+) TEXT [^,]*?CHECK \(\1 IN \(([^)]*)\)\)")


class Column(NamedTuple):
    """One column. `values`: the texts that its CHECK permits, as the SQL has them; "" for any."""

    name: str
    type: str
    is_null: bool
    in_key: int
    values: str


def render() -> dict[str, str]:
    """Render each file's text, by its path from the root folder."""
    kinds = ", ".join(f'"{kind}"' for kind in LOGS)
    files = {"appliance/shared/exported_logs.py": LOGS_FILE.format(kinds)}
    with tempfile.TemporaryDirectory() as folder:
        for store, classes in CLASSES.items():
            path = Path(folder) / store
            migrate(path, store, clock=SystemClock(), log=Log(io.BytesIO()))
            with closing(sqlite3.connect(path)) as connection:
                named = {
                    name: (table, list(_columns(connection, table)))
                    for table, name in classes.items()
                }
            for module, suffix, write in (("model", "", models), ("rows", "Row", rows)):
                used = imported(f"appliance.{store}.{module}")
                written = {name: each for name, each in named.items() if name + suffix in used}
                if written:
                    files[f"appliance/{store}/{module}.py"] = write(store, written)
    return files


def imported(module: str) -> set[str]:
    """Return the names that the appliance's modules import from `module`."""
    names: set[str] = set()
    for file in (ROOT / "appliance").rglob("*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if f"from {module} import" in text else ():
            if isinstance(node, ast.ImportFrom) and node.module == module:
                names.update(alias.name for alias in node.names)
    return names


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
        lines += ["", f"class {name}Row(NamedTuple):", f'    """A row in `{table}`."""', ""]
        for column in columns:
            values = " ".join(column.values.replace("'", '"').split())
            type_ = f"Literal[{values}]" if values else TYPES[column.type]
            line = f"    {column.name}: {type_}{' | None' if column.is_null else ''}"
            if len(line) > LINE_MAX:  # as the formatter wraps it
                line = line.replace(f"[{values}]", f"[\n        {values}\n    ]")
            lines.append(line)
        lines.append("")
    text = "\n".join(lines)
    imported = "Literal, NamedTuple" if "Literal[" in text else "NamedTuple"
    head = f'{GENERATED} the migrations of the {store} by `just models`: its rows as tuples."""'
    return f"{head}\n\nfrom typing import {imported}\n\n{text}"


if __name__ == "__main__":
    sys.exit(generated.write(render()))
