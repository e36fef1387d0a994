"""Converts between A2A messages and the hub texts."""

import hashlib
from collections.abc import Sequence
from typing import Any

from appliance.hub.a2a.queries import StoredTask, TaskKey, TaskText
from appliance.hub.a2a.wire import (
    A2aMessage,
    Artifact,
    NoSuchContentType,
    Part,
    Task,
    TaskStatus,
)
from appliance.kernel.errors import Invalid


def read_text(parts: Sequence[Part]) -> str:
    """Return the parts as one text: data as a JSON block, a URL as a line. Raises Invalid, or
    NoSuchContentType for bytes."""
    text = "\n\n".join(_read_part(part) for part in parts)
    if not text.strip():
        raise Invalid(
            "the message has no text",
            details={"field": "message.parts"},
            hint='send {"parts":[{"text":"…"}]}',
        )
    return text


def to_envelope(key: TaskKey, entry: int, message_id: str, text: str, now: str) -> dict[str, Any]:
    """Return an envelope for an agent's workers. `entry`: what a worker acknowledges at the
    end. A repeated message has the same envelope id."""
    id_ = "a2a_" + hashlib.sha256(f"{key.topic}\n{message_id}".encode()).hexdigest()[:32]
    payload = {
        "task": key.topic, "entry": entry, "agent": key.agent, "from": key.caller, "text": text,
    }  # fmt: skip
    return {"id": id_, "ts": now, "type": "a2a.message", "from": "a2a", "payload": payload}


def to_task(task: StoredTask, key: TaskKey, history: int | None = None) -> Task:
    """Return the task. `history`: how many of the caller's newest messages it has; None: all."""
    sent = [text for text in task.texts if text.sender == key.caller]
    shown = sent if history is None else sent[len(sent) - min(history, len(sent)) :]
    return Task(
        key.topic, task.context, to_status(task, key), to_artifacts(task, key),
        [_message(text, key, task) for text in shown],
        {"truncated": True} if task.has_more else {},
    )  # fmt: skip


def to_artifacts(task: StoredTask, key: TaskKey) -> list[Artifact]:
    """Return the agent's messages, without its question to the caller."""
    return [
        Artifact(text.id, [Part(text=text.content)])
        for text in task.texts
        if text.sender == key.agent
    ]


def to_status(task: StoredTask, key: TaskKey) -> TaskStatus:
    """Return the status; the question or the reason is its message."""
    progress, message = task.progress, None
    if progress.reason is not None:
        name = progress.question or f"{key.topic}-{progress.state}"
        text = TaskText(name, key.agent, progress.reason)
        message = _message(text, key, task)
    return TaskStatus(progress.state, progress.since, message)


def _message(text: TaskText, key: TaskKey, task: StoredTask) -> A2aMessage:
    return A2aMessage(
        text.id, "ROLE_AGENT" if text.sender == key.agent else "ROLE_USER",
        [Part(text=text.content)], task.context, key.topic,
    )  # fmt: skip


def _read_part(part: Part) -> str:
    if part.raw is not None:
        raise NoSuchContentType(details={"field": "message.parts"})
    if part.data:
        return f"```json\n{bytes(part.data).decode()}\n```"
    return part.text or part.url or ""
