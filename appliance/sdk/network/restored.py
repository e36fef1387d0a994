"""Restores an agent's state from a backup."""

from contextlib import closing
from pathlib import Path

from appliance.kernel.clock import HOUR_MS
from appliance.sdk.network.state import AgentState

RESTORED = "restored_ms"
"""The cursor with the restore's time. Envelopes that were sealed earlier may have been received
since the backup, so they are not accepted. Their senders seal them again."""


def adjust_store(path: Path, now_ms: int) -> None:
    """Adjust the store: messages older than an hour are not sent any more. Raises
    AgentStateDamaged."""
    with closing(AgentState(path)) as state:
        state.set_cursor(RESTORED, str(now_ms))
        with state.transaction() as tx:
            tx.execute(
                "UPDATE outgoing SET status = 'expired', payload = NULL"
                " WHERE status IN ('pending', 'sending') AND created_ms <= ?",
                (now_ms - HOUR_MS,),
            )
