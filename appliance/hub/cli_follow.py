"""`agentlip msg tail --follow`: the newest messages of a topic, then new ones as they arrive."""

from typing import Any

import msgspec

from appliance.cli_support import Session, note, until_signalled

CREATED = "message.created"


def follow_topic(
    session: Session, topic_id: str, rows: list[dict[str, Any]], after: int, columns: Any
) -> None:
    """Print `rows`, oldest first, then every new message once. Ends with Ctrl-C or SIGTERM.

    `after`: the newest event before `rows` were read, so that no message is missed.
    """
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.stream_follower import Follower

    printed_ids = {row["id"] for row in rows}
    follower = Follower(
        lambda: find_hub(session.workspace),
        {"channels": [], "topics": [topic_id]},
        after=after,
        restart=lambda history: history.newest,  # after a restore, continue with new messages
        say=lambda text: note(f"agentlip msg tail: {text}"),
    )
    with until_signalled():
        for row in reversed(rows):
            session.line(row, columns)
        for event in follower.events():
            if event is None or event.name != CREATED:
                continue
            message = msgspec.json.decode(event.text)["data"]["message"]
            if message["id"] not in printed_ids:
                session.line(message, columns)


def newest_event(session: Session) -> int:
    """The id of the newest event. Raises if no hub is running."""
    events = session.hub().get("/api/v1/events", tail=1)["events"]
    return int(events[-1]["event_id"]) if events else 0
