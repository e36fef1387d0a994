"""Reads the worker bus: `appliance/busfile` on a connection from the store's readers."""

from pathlib import Path
from typing import Any

from appliance.busfile import claims, messages, retention, workers
from appliance.busfile.claims import BusClaim
from appliance.busfile.messages import BusMessage
from appliance.kernel.reader import snapshot

REPLY_BYTES_MAX = 1024 * 1024  # payloads in one reply; further messages are in the next


def poll(
    reader: Any, blobs: Path, agent: str | None, after: int | None, limit: int
) -> tuple[list[BusMessage], int]:
    """Return the next messages for the agent or for all, and the newest message's number."""
    with snapshot(reader.connection):
        rows = messages.poll(reader, blobs, agent, limit, REPLY_BYTES_MAX, after)
        return rows, messages.head(reader)


def version(reader: Any) -> tuple[int, int]:
    """Return a number that changes with each commit on another connection, and the newest
    message."""
    (number,) = reader.execute("PRAGMA data_version").fetchone()
    return int(number), messages.head(reader)


def measure(reader: Any, now_ms: int) -> tuple[int, list[tuple[int, str]], int, dict[str, int]]:
    """Return stored messages, agents' lags, expired claims, and workers by state."""
    with snapshot(reader.connection):
        (stored,) = reader.execute("SELECT count(*) FROM messages").fetchone()
        query = "SELECT count(*) FROM task_claims WHERE lease_until_ms <= ?"
        (expired,) = reader.execute(query, (now_ms,)).fetchone()
        counts = dict(reader.execute("SELECT state, count(*) FROM workers GROUP BY state"))
        states = {str(state): counts.get(state, 0) for state in workers.TRANSITIONS if state}
        return stored, retention.lags(reader, now_ms), expired, states


def all_claims(reader: Any, now_ms: int) -> list[BusClaim]:
    return [present for present in claims.all_claims(reader) if present.valid(now_ms)]
