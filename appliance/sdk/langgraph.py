"""Keeps LangGraph checkpoints and store items in the hub: `pip install agentlip[langgraph]`.

Each thread is a topic, and each checkpoint, task write and store item is a message: backups,
erasure, scopes and the UI apply to them. Processes that share a thread see each other's writes.
"""

import asyncio
import threading
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import GetOp, IndexConfig, Item, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from appliance.sdk.client import Client
from appliance.sdk.topic_log import Change, TopicLog, list_titles, make_title

CHANNEL = "langgraph"
STORE_CHANNEL = "langgraph-store"  # another than the threads have: any title may be a thread
STORE = "items"
THREADS_MAX = 100  # kept in memory; others are read again when they are used


class HubSaver(BaseCheckpointSaver[str]):
    """A checkpointer. `hub`: its token needs `hub:read` and `hub:post`."""

    def __init__(self, hub: Client, channel: str = CHANNEL, sender: str = CHANNEL) -> None:
        super().__init__()
        self._hub, self._channel, self._sender = hub, channel, sender
        self._threads: OrderedDict[str, SavedThread] = OrderedDict()
        self._lock = threading.RLock()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        values = checkpoint["channel_values"]
        changed = {name: values[name] for name in new_versions if name in values}
        arguments = (
            {**checkpoint, "channel_values": changed},
            get_checkpoint_metadata(config, metadata),
            new_versions,
        )
        self._append(config, "put", arguments)
        return {"configurable": {**_locate(config), "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._append(config, "put_writes", (list(writes), task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._lock:
            return self._read(_read_thread_id(config)).get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - upstream's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        names: Iterable[str] = (
            [_read_thread_id(config)] if config else list_titles(self._hub, self._channel)
        )
        for name in names:
            with self._lock:
                saver = self._read(name)
                matches = list(saver.list(config, filter=filter, before=before, limit=limit))
            yield from matches
            if limit is not None and (limit := limit - len(matches)) <= 0:
                return

    def delete_thread(self, thread_id: str) -> None:
        with self._lock:
            self._open_thread(thread_id).log.clear()
            self._threads.pop(make_title(thread_id))

    def _append(self, config: RunnableConfig, call: str, arguments: tuple[Any, ...]) -> None:
        kind, data = self.serde.dumps_typed(arguments)
        position = {**_locate(config), "checkpoint_id": config["configurable"].get("checkpoint_id")}
        record = {
            "call": call,
            "position": position,
            "kind": kind,
            "data": b64encode(data).decode(),
        }
        with self._lock:
            self._open_thread(_read_thread_id(config)).log.append(record)

    def _read(self, thread_id: str) -> InMemorySaver:
        thread = self._open_thread(thread_id)
        thread.update()
        return thread.saver

    def _open_thread(self, thread_id: str) -> "SavedThread":
        title = make_title(thread_id)
        if title not in self._threads:
            log = TopicLog(self._hub, self._channel, title, self._sender)
            self._threads[title] = SavedThread(log, self.serde)
            if len(self._threads) > THREADS_MAX:
                self._threads.popitem(last=False)
        self._threads.move_to_end(title)
        return self._threads[title]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self, config: RunnableConfig | None, **options: Any
    ) -> AsyncIterator[CheckpointTuple]:
        for match in await asyncio.to_thread(lambda: list(self.list(config, **options))):
            yield match

    async def aput(self, *arguments: Any) -> RunnableConfig:
        return await asyncio.to_thread(self.put, *arguments)

    async def aput_writes(self, *arguments: Any, **options: Any) -> None:
        await asyncio.to_thread(lambda: self.put_writes(*arguments, **options))

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)


class SavedThread:
    """One thread's checkpoints in memory, made from its topic."""

    def __init__(self, log: TopicLog, serde: SerializerProtocol) -> None:
        self.log = log
        self.saver = InMemorySaver(serde=serde)
        self._serde = serde

    def update(self) -> None:
        changes = self.log.changes()
        if any(change.record is None for change in changes):  # the thread was deleted
            self.log.restart()
            self.saver = InMemorySaver(serde=self._serde)
            changes = self.log.changes()
        for change in changes:
            if change.record is not None and "call" in change.record:
                self._apply(change.record)

    def _apply(self, record: dict[str, Any]) -> None:
        arguments = self._serde.loads_typed((record["kind"], b64decode(record["data"])))
        config: RunnableConfig = {"configurable": record["position"]}
        if record["call"] == "put":
            self.saver.put(config, *arguments)
        else:
            self.saver.put_writes(config, *arguments)


class HubStore(InMemoryStore):
    """A store: a copy in memory, made from one topic and kept up to date."""

    def __init__(
        self,
        hub: Client,
        channel: str = STORE_CHANNEL,
        sender: str = CHANNEL,
        *,
        index: IndexConfig | None = None,
    ) -> None:
        super().__init__(index=index)
        self._log = TopicLog(hub, channel, STORE, sender)
        self._messages: dict[tuple[tuple[str, ...], str], str] = {}
        self._lock = threading.RLock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        with self._lock:
            for op in ops:
                if isinstance(op, PutOp):
                    self._write(op)
            for change in self._log.changes():
                self._apply(change)
            read = [op for op in ops if not isinstance(op, PutOp)]
            matches = iter(super().batch(read))
            return [None if isinstance(op, PutOp) else next(matches) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def _write(self, op: PutOp) -> None:
        """Append an item, and delete the message that it replaces."""
        now = datetime.now(UTC).isoformat()
        before = super().batch([GetOp(op.namespace, op.key)])[0]
        created = before.created_at.isoformat() if isinstance(before, Item) else now
        self._log.append({
            "namespace": list(op.namespace), "key": op.key, "value": op.value,
            "index": list(op.index) if op.index else op.index, "created": created, "updated": now,
        })  # fmt: skip
        if replaced := self._messages.pop((op.namespace, op.key), None):
            self._log.delete(replaced)

    def _apply(self, change: Change) -> None:
        """Put an item into the copy. A deleted message was replaced by a later one."""
        record = change.record
        if record is None or "namespace" not in record:
            return
        position = tuple(record["namespace"]), record["key"]
        super().batch([PutOp(*position, record["value"], record["index"])])
        self._messages[position] = change.message_id
        item = super().batch([GetOp(*position)])[0]
        if isinstance(item, Item):
            item.created_at = datetime.fromisoformat(record["created"])
            item.updated_at = datetime.fromisoformat(record["updated"])


def _locate(config: RunnableConfig) -> dict[str, str]:
    position = config["configurable"]
    return {
        "thread_id": _read_thread_id(config),
        "checkpoint_ns": position.get("checkpoint_ns", ""),
    }


def _read_thread_id(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])
