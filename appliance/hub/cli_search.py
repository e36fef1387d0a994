"""`agentlip search`: messages by their words, straight from the database."""

from typing import Annotated

import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.hub.cli_reach import open_reader

app = plain_app()


@app.command("search")
@common
def search(
    session: Session,
    query: Annotated[str, typer.Argument(help='Words, "a phrase", one OR two.')],
    channel: Annotated[str | None, typer.Option("--channel", help="Only here; name or id.")] = None,
    topic_id: Annotated[str | None, typer.Option("--topic-id", help="Only in this topic.")] = None,
    sender: Annotated[str | None, typer.Option("--sender", help="Only from this sender.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Sent at or after this time (ISO 8601, UTC).")
    ] = None,
    before: Annotated[str | None, typer.Option("--before", help="Sent before this time.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many (1 to 1000).")] = 100,
) -> None:
    """Messages that hold all the words, the best first.

    "exact phrase", word1 word2 (both), word1 OR word2. Where SQLite has no full-text index,
    texts are compared letter by letter; the answer says so.
    """
    with open_reader(session) as reader:
        found = reader.search(
            query, channel=channel, topic_id=topic_id, sender=sender,
            after=after, before=before, limit=limit,
        )  # fmt: skip
    if session.as_json:
        session.answer(found, "")
        return
    columns = [("CREATED", "created_at"), ("ID", "id"), ("SENDER", "sender")]
    session.table(found["messages"], [*columns, ("TEXT", "snippet")], empty="nothing found")
    if session.machine:
        return
    if found["has_more"]:
        note(f"(the first {len(found['messages'])} matches; narrow the search to see others)")
    if not found["fts_used"]:
        note("(without a full-text index: compared letter by letter)")
