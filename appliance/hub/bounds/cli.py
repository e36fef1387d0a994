"""`agentlip pause`, `resume` and `pauses`, and `agentlip ceiling`."""

import re
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain, plain_app
from appliance.hub.cli_reach import KeyFlag
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid

pausing = plain_app(listed="Messages/pause")
resuming = plain_app(listed="Messages/resume")
listing = plain_app(listed="Messages/pauses")
ceilings = plain_app(
    "Limits for a name on a UTC day: set, list, remove.\n\n"
    "Example: agentlip ceiling set ada --messages 500 --cost 20",
    "Messages/ceiling",
)
PAUSES, CEILINGS = "/api/v1/pauses", "/api/v1/ceilings"
UNITS = ("messages", "turns", "claims", "tokens", "cost")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_duration = re.compile(r"([0-9]{1,8})([smhd])").fullmatch

PrincipalFlag = Annotated[
    str | None, typer.Option("--principal", help="Name of a token, a sender or an agent.")
]
TopicFlag = Annotated[str | None, typer.Option("--topic", help="Topic as an id, or CHANNEL/TITLE.")]
AllFlag = Annotated[bool, typer.Option("--all", help="All agents, but no person.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a token or a sender.")]
CountFlag = Annotated[int | None, typer.Option(min=1, max=10**12, help="The most on a UTC day.")]
CostFlag = Annotated[
    float | None, typer.Option(min=0, max=1e12, help="The most, in the unit that turns report.")
]


@pausing.command("pause")
def begin_pause(
    session: Session,
    principal: PrincipalFlag = None,
    topic: TopicFlag = None,
    everybody: AllFlag = False,
    until: Annotated[
        str | None,
        typer.Option("--until", help="A time such as 2026-12-24T18:00Z, or a duration such as 2h."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Pause a name, the agents in a topic, or all agents.

    They can't post, claim, receive or wait for work. Reading, acks and releases go on.

    Example: agentlip pause --principal ada --until 2h --reason 'deploy freeze'
    """
    body = {**_target(principal, topic, everybody), "reason": reason, **_end(until)}
    answer = session.hub().post(PAUSES, body, idempotency_key)
    pause = answer["pause"]
    session.answer(answer, f"paused {_subject(pause)}{_until(pause)}")


@resuming.command("resume")
def end_pause(
    session: Session,
    principal: PrincipalFlag = None,
    topic: TopicFlag = None,
    everybody: AllFlag = False,
    idempotency_key: KeyFlag = None,
) -> None:
    """End a pause. After a ceiling, the name gets the ceiling for today once more.

    Example: agentlip resume --principal ada
    """
    body = _target(principal, topic, everybody)
    answer = session.hub().post(f"{PAUSES}/resume", body, idempotency_key)
    session.answer(answer, f"resumed {_subject(answer['pause'])}")


@listing.command("pauses")
def list_pauses(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of pauses.")] = 200,
) -> None:
    """List the pauses, with their cause, beginning, end and reason."""
    rows, _ = session.hub().page(PAUSES, "pauses", limit)
    session.table(
        rows,
        [("PAUSED", _subject), ("CAUSE", "cause"), ("BY", "by"), ("SINCE", "at"),
         ("UNTIL", "until"), ("REASON", "reason")],
        empty="nothing is paused",
    )  # fmt: skip


@ceilings.command("set")
def set_ceiling(
    session: Session,
    name: NameArgument,
    messages: CountFlag = None,
    turns: CountFlag = None,
    claims: CountFlag = None,
    tokens: CountFlag = None,
    cost: CostFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Set a name's ceiling, in place of its former one. At 80 % the operator gets a message, and
    at 100 % the name is paused.

    Example: agentlip ceiling set ada --messages 500 --cost 20
    """
    limits = dict(zip(UNITS, (messages, turns, claims, tokens, cost), strict=True))
    answer = session.hub().post(CEILINGS, {"name": name, **limits}, idempotency_key)
    shown = [f"{limit:g} {unit}" for unit, limit in limits.items() if limit is not None]
    session.answer(answer, f"{plain(name)} may use {', '.join(shown)} on a day")


@ceilings.command("list")
def list_ceilings(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of names.")] = 200,
) -> None:
    """List the names with a ceiling, with what they have used today."""
    rows, _ = session.hub().page(CEILINGS, "ceilings", limit)
    session.table(
        rows,
        [("NAME", "name"), *((unit.upper(), _used_of(unit)) for unit in UNITS),
         ("GRANTED", lambda row: row["usage"]["granted"])],
        empty="no ceilings; set one with 'agentlip ceiling set NAME --messages 500'",
    )  # fmt: skip


@ceilings.command("remove")
def remove_ceiling(session: Session, name: NameArgument, idempotency_key: KeyFlag = None) -> None:
    """Remove a name's ceiling. A pause stays until somebody resumes the name.

    Example: agentlip ceiling remove ada
    """
    answer = session.hub().post(f"{CEILINGS}/remove", {"name": name}, idempotency_key)
    session.answer(answer, f"{plain(name)} has no ceiling now")


def _target(principal: str | None, topic: str | None, everybody: bool) -> dict[str, Any]:
    return {"principal": principal, "topic_id": topic, "all": everybody}


def _end(until: str | None) -> dict[str, Any]:
    """Return the fields for a time or a duration. Raises Invalid."""
    if until is None:
        return {}
    if match := _duration(until):
        return {"seconds": int(match[1]) * SECONDS[match[2]]}
    try:
        return {"until": utc(until)}
    except ValueError:
        raise Invalid(
            "--until is neither a time nor a duration", hint="--until 2h, or 2026-12-24T18:00Z"
        ) from None


def _subject(pause: Any) -> str:
    if pause["kind"] == "all":
        return "all agents"
    return plain(f"{pause['kind']} {pause['topic'] or pause['subject']}")


def _until(pause: Any) -> str:
    return f" until {pause['until']}" if pause["until"] else ""


def _used_of(unit: str) -> Any:
    def used(row: Any) -> str:
        limit = row[unit]
        amount = f"{row['usage'][unit]:g}"
        return amount if limit is None else f"{amount} of {limit * (1 + row['usage']['granted']):g}"

    return used
