"""Reads tasks: a topic, the entries for the caller's messages, and the texts."""

from typing import Any, NamedTuple

from msgspec import json

from appliance.hub.a2a.states import Progress, TaskEntry, progress_of
from appliance.hub.a2a.wire import TASK_MESSAGES_MAX, TaskMissing
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

TEXTS_MAX = 2 * TASK_MESSAGES_MAX
WAITING_ASKS_MAX = 1000

# A topic belongs to the sender of its first message.
_TITLE = (
    "SELECT t.title FROM topics AS t JOIN channels AS c ON c.id = t.channel_id"
    " WHERE t.id = :topic AND c.name = :channel AND :caller ="
    " (SELECT sender FROM messages WHERE topic_id = t.id ORDER BY id LIMIT 1)"
)
_ENTRIES = (
    "SELECT e.id, e.state, e.stored_at, e.listed_at, e.settled_at, e.declined_because,"
    " e.overdue_at FROM messages AS m JOIN x_entries AS e ON e.message_id = m.id"
    " AND e.name = :agent WHERE m.topic_id = :topic AND m.sender = :caller"
    f" ORDER BY m.id LIMIT {TASK_MESSAGES_MAX}"
)
_QUESTIONS = (
    "SELECT a.id, a.text, a.created_at, a.may_answer_json FROM x_asks AS a"
    " JOIN messages AS m ON m.id = a.message_id AND m.topic_id = :topic"
    f" WHERE a.state = 'waiting' ORDER BY a.id DESC LIMIT {WAITING_ASKS_MAX}"
)
_TEXTS = (
    "SELECT id, sender, content_raw FROM messages WHERE topic_id = :topic AND deleted_at IS NULL"
    " AND sender IN (:agent, :caller)"
    " AND NOT EXISTS (SELECT 1 FROM x_asks AS a WHERE a.message_id = messages.id)"
    f" ORDER BY id DESC LIMIT {TEXTS_MAX + 1}"
)


class TaskKey(NamedTuple):
    """A task's identity. `topic`: the task's id; `name`: the caller's token, for asks."""

    topic: str
    channel: str
    agent: str
    caller: str
    name: str


class TaskText(NamedTuple):
    id: str
    sender: str
    content: str


class StoredTask(NamedTuple):
    """A task. `texts`: oldest first; `has_more`: whether older ones are left out."""

    context: str
    entries: list[TaskEntry]
    progress: Progress
    texts: list[TaskText]
    has_more: bool


def find_entry(reader: Executor, message_id: str, agent: str) -> int:
    """Return the number of a message's entry for the agent."""
    query = "SELECT id FROM x_entries WHERE message_id = ? AND name = ?"
    (number,) = reader.execute(query, (message_id, agent)).fetchone()
    return int(number)


def title_of(agent: str, context: str, number: str) -> str:
    """Return a task's topic title, by which later requests find the task."""
    return f"{agent} {context} {number}"


def find_progress(reader: Executor, key: TaskKey) -> tuple[str, list[TaskEntry], Progress]:
    """Return (context, entries, progress). Raises TaskMissing."""
    values = key._asdict()
    row = reader.execute(_TITLE, values).fetchone()
    agent, _, rest = ("" if row is None else str(row[0])).partition(" ")
    entries = [TaskEntry(*entry) for entry in reader.execute(_ENTRIES, values).fetchall()]
    if agent != key.agent or not entries:
        raise TaskMissing(details={"task": key.topic})
    return rest.partition(" ")[0], entries, progress_of(entries, _find_question(reader, key))


def find_task(reader: Reader, key: TaskKey) -> StoredTask:
    """Return a task with as many texts as one page may have. Raises TaskMissing."""
    context, entries, progress = find_progress(reader, key)
    texts, has_more = reader.page(
        _TEXTS, key._asdict(), limit=TEXTS_MAX, make=lambda row: TaskText(*row),
        size=lambda text: ROW_BYTES + text_bytes(text.content),
    )  # fmt: skip
    return StoredTask(context, entries, progress, texts[::-1], has_more)


def _find_question(reader: Executor, key: TaskKey) -> Any:
    """Return (id, text, time) of an ask for this caller; None without one. An ask for everybody is
    for the people here, so it is left out."""
    for *question, names in reader.execute(_QUESTIONS, key._asdict()).fetchall():
        if key.name in json.decode(names, type=list[str]):
            return question
    return None
