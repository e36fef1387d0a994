"""`agentlip inbox mine` (or `--mine`) and its verbs, over the hub's HTTP API."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

from appliance.busfile.worker.context import agent_name
from appliance.cli_support import Columns, Session, plain
from appliance.hub.cli_reach import KeyFlag, segment
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid

PATH = "/api/v1/inbox"
WAIT_SECONDS = 25.0  # that one request waits
EXIT_EMPTY = 3
CLOCK = SystemClock()

NameFlag = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Whose inbox (default: the worktree's task, AGENTLIP_AGENT, or the token's name).",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic as an id, or CHANNEL/TITLE.")
]
COLUMNS: Columns = [
    ("ID", "id"), ("STORED", "stored_at"), ("STATE", "state"), ("ACK BY", "ack_by"),
    ("FROM", lambda row: row["message"]["sender"]),
    ("MESSAGE", lambda row: row["message"]["content_raw"]),
]  # fmt: skip


class InboxGroup(TyperGroup):
    """Reads `--mine` as the command `mine`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        about = "List the entries that wait in your inbox: the command mine."
        self.params.append(
            TyperOption(param_decls=["--mine"], is_flag=True, expose_value=False, help=about)
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--mine" in args and "mine" not in args:
            args = ["mine", *(word for word in args if word != "--mine")]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def list_mine(
    session: Session,
    name: NameFlag = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=86_400, help="Wait up to this many seconds.")
    ] = 0.0,
    settled: Annotated[
        bool, typer.Option("--settled", help="Also acknowledged and declined entries.")
    ] = False,
    peek: Annotated[
        bool, typer.Option("--peek", help="Leave entries unlisted in their receipts.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of entries.")] = 50,
) -> None:
    """List the entries that wait in your inbox, oldest first. Listing acknowledges nothing.

    With --wait, the exit code is 3 if nothing came. Example: agentlip inbox mine --wait 600
    """
    from appliance.sdk.http import PATIENT

    hub, until = session.hub(PATIENT if wait else None), CLOCK.monotonic() + wait
    flags = {"settled": "true" if settled else None, "peek": "true" if peek else None}
    whose = name or agent_name()
    while True:
        left = max(0.0, until - CLOCK.monotonic())
        page = hub.get(PATH, name=whose, limit=limit, wait=min(left, WAIT_SECONDS), **flags)
        if page["entries"] or left <= WAIT_SECONDS:
            break
    session.table(page["entries"], COLUMNS, empty="nothing waits for you", answer=page)
    if page["has_more"]:
        session.note(f"({page['open']} wait; use --limit to see more)")
    if wait and not page["entries"]:
        raise typer.Exit(EXIT_EMPTY)


def acknowledge(
    session: Session,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids of entries, or FIRST-LAST.")
    ],
    name: NameFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Acknowledge entries by id, or a listed range as FIRST-LAST: all, or none.

    Example: agentlip inbox ack 12-15
    """
    body: dict[str, Any] = {"name": name or agent_name()}
    first, dash, last = ids[0].partition("-")
    if dash and len(ids) == 1:
        body |= {"first": _number(first), "last": _number(last)}
    else:
        body["ids"] = [_number(each) for each in ids]
    answer = session.hub().post(f"{PATH}/acknowledge", body, idempotency_key)
    again = f" ({len(answer['already'])} were so before)" if answer["already"] else ""
    session.answer(answer, f"acknowledged {_entries(len(answer['ids']))}{again}")


def decline(
    session: Session,
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the entry.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; the sender sees it.")],
    name: NameFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Decline an entry, with a reason for its sender.

    Example: agentlip inbox decline 12 --reason 'not my service'
    """
    body = {"id": _number(entry_id), "reason": reason, "name": name or agent_name()}
    answer = session.hub().post(f"{PATH}/decline", body, idempotency_key)
    session.answer(answer, f"declined entry {entry_id}")


def follow(
    session: Session, topic: TopicArgument, name: NameFlag = None, idempotency_key: KeyFlag = None
) -> None:
    """Follow a topic: each later message becomes an entry in your inbox.

    Example: agentlip inbox follow general/builds
    """
    _change(session, "follow", topic, name, idempotency_key)


def unfollow(
    session: Session, topic: TopicArgument, name: NameFlag = None, idempotency_key: KeyFlag = None
) -> None:
    """Stop following a topic.

    Example: agentlip inbox unfollow general/builds
    """
    _change(session, "unfollow", topic, name, idempotency_key)


def list_follows(session: Session, name: NameFlag = None) -> None:
    """List the topics that you follow."""
    answer = session.hub().get(f"{PATH}/follows", name=name or agent_name())
    session.table(
        answer["follows"], [("TOPIC", "topic_id"), ("SINCE", "created_at")],
        empty="no topics; follow one with 'agentlip inbox follow TOPIC'",
    )  # fmt: skip


VERBS: dict[str, Callable[..., None]] = {
    "mine": list_mine,
    "ack": acknowledge,
    "decline": decline,
    "follow": follow,
    "unfollow": unfollow,
    "follows": list_follows,
}


def show_receipts(session: Session, message_id: str) -> None:
    """Print a message's state for each recipient."""
    answer = session.hub().get(f"/api/v1/messages/{segment(message_id)}/receipts")
    session.table(
        answer["receipts"],
        [("NAME", "name"), ("STATE", "state"), ("BEFORE", "before"), ("WAKING", "waking"),
         ("LAST SEEN", "last_seen"), ("ACK BY", "ack_by"), ("SETTLED", "settled_at"),
         ("LISTED", "listed_at"), ("REASON", "declined_because")],
        empty="addressed to nobody", answer=answer,
    )  # fmt: skip


def _change(session: Session, verb: str, topic: str, name: str | None, key: str | None) -> None:
    from appliance.sdk.catalogue import topic_id_of

    hub = session.hub()
    path = f"/api/v1/topics/{segment(topic_id_of(hub, topic))}/{verb}"
    answer = hub.post(path, {"name": name or agent_name()}, key)
    done = "follows" if verb == "follow" else "no longer follows"
    session.answer(answer, f"{plain(answer['follow']['name'])} {done} {plain(topic)}")


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise Invalid(f"{text[:40]!r} is not an entry's id", hint="agentlip inbox mine")
    return int(text)
