"""`agentlip search`: full-text search in the database."""

from typing import Annotated

import typer

from appliance.cli_support import Session, plain_app
from appliance.hub.cli_reach import open_reader

app = plain_app(listed="Messages/search")


@app.command("search")
def search(
    session: Session,
    query: Annotated[str, typer.Argument(help='Words, "a phrase", or one OR two.')],
    channel: Annotated[
        str | None, typer.Option("--channel", help="Only this channel, by name or id.")
    ] = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Only this topic, by id or CHANNEL/TITLE.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", help="Only messages from this sender.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Sent at or after this time (ISO 8601, UTC).")
    ] = None,
    before: Annotated[str | None, typer.Option("--before", help="Sent before this time.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum matches (1 to 1000).")] = 100,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="The last word matches no longer words.")
    ] = False,
) -> None:
    """Search messages, best match first.

    The last word also matches longer words if it has three characters, for example short hashes.

    A query is "an exact phrase", word1 word2 (both) or word1 OR word2. Without a full-text index,
    texts are compared as substrings, and the output says so.
    """
    with open_reader(session) as reader:
        result = reader.search(
            query, channel=channel, topic_id=topic_id, sender=sender,
            after=after, before=before, limit=limit,
            prefix=not whole_words, order="newest" if newest else "best",
        )  # fmt: skip
    columns = [
        ("CREATED", "created_at"), ("ID", "id"), ("SENDER", "sender"), ("TEXT", "snippet"),
    ]  # fmt: skip
    session.table(result["messages"], columns, empty="nothing found", answer=result)
    if result["has_more"]:
        session.note(
            f"(the first {len(result['messages'])} matches; narrow the search to see others)"
        )
    if not result["fts_used"]:
        session.note("(no full-text index: compared as substrings)")
