"""`agentlip courier`: envelopes in and out, streams looked at and mended, rules tried."""

import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.courier import cli_run
from appliance.kernel.errors import Invalid

app = plain_app("Envelopes: enqueue, subscribe, look into streams, dead letters, rules.")
dead = plain_app("Dead letters: list, redrive, purge.")
rules = plain_app("Triggers: check the settings, try an envelope.")
app.add_typer(dead, name="dlq")
app.add_typer(rules, name="rules")

StreamArgument = Annotated[str, typer.Argument(help="Name of the stream, agents/Jen/inbox.")]
LimitFlag = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only say what it would be.")]
YesFlag = Annotated[bool, typer.Option("--yes", help="Do not ask for the stream's name first.")]
IdsFlag = Annotated[list[str] | None, typer.Option("--id", help="Only this one; repeatable.")]
TypeFlag = Annotated[str | None, typer.Option("--type", help="Only of this type.")]
FromFlag = Annotated[str | None, typer.Option("--from", help="Only from this sender.")]
RateFlag = Annotated[float | None, typer.Option("--rate", min=0.001, help="So many a second.")]
ReasonFlag = Annotated[str | None, typer.Option("--reason", help="Only dead for this reason.")]

LISTED = [
    ("ID", "id"), ("STATE", "state"), ("TRIES", "attempts"), ("SINCE", "enqueuedAt"),
    ("TYPE", "type"), ("WHY", "reason"),
]  # fmt: skip
FIGURES = [
    ("READY", "ready"), ("OUT", "inflight"), ("LATER", "delayed"), ("DEAD", "dead"),
    ("IN/S", "rateIn"), ("OUT/S", "rateOut"), ("P95 MS", "latP95"), ("OLDEST MS", "oldestReadyMs"),
    ("TAKERS", "subscribers"), ("STREAM", "id"),
]  # fmt: skip


@app.command("enqueue")
@common
def enqueue(
    session: Session,
    stream: StreamArgument,
    payload: Annotated[
        str | None, typer.Argument(help="Payload as JSON; - reads envelopes from stdin, JSONL.")
    ] = None,
    type_: Annotated[str, typer.Option("--type", help="Type of the envelope.")] = "message",
    sender: Annotated[str | None, typer.Option("--from", help="Who sends.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Its id (default: new).")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Repeatable.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="partitionKey.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=9)] = None,
    delay_ms: Annotated[int | None, typer.Option("--delay-ms", min=0)] = None,
    ttl_ms: Annotated[int | None, typer.Option("--ttl-ms", min=0)] = None,
) -> None:
    """Put an envelope, or a whole file of them, into a stream for consumers to work on.

    Other ways of sending: agentlip msg send posts to a topic of this hub; agentlip outbox send
    reaches members of meshes and mail addresses.
    """
    from appliance.sdk.courier import envelope

    if payload == "-":
        sent = cli_run.enqueue_lines(session, stream, sys.stdin.buffer, type_, sender)
        session.answer({"enqueued": sent}, f"enqueued {sent} into {stream}")
        return
    env = envelope(
        type_,
        _json(payload) if payload is not None else None,
        sender,
        id=id_,
        tags=tag,
        headers=dict(_pair(text) for text in header) if header else None,
        partitionKey=key,
        priority=priority,
        delayMs=delay_ms,
        ttlMs=ttl_ms,
    )
    answer = _client(session).post("/v1/enqueue", {"to": stream, "envelope": env})
    again = " (known already)" if answer.get("duplicate") else ""
    session.answer(answer, f"enqueued {answer['id']}{again}")


@app.command("subscribe")
@common
def subscribe(
    session: Session,
    stream: Annotated[str, typer.Argument(help="A stream, or a pattern: agents/*/inbox.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: run this for each envelope, JSON on its stdin."),
    ] = None,
    credit: Annotated[int, typer.Option("--credit", min=1, max=10_000)] = 10,
    lease_ms: Annotated[int | None, typer.Option("--lease-ms", min=1)] = None,
    exit_after: Annotated[int | None, typer.Option("--exit-after", min=1)] = None,
    idle: Annotated[
        float | None, typer.Option("--exit-when-idle", min=0.1, help="Seconds without any.")
    ] = None,
) -> None:
    """Print envelopes, one JSON line each, or run a command for each of them.

    At least once: acked when printed, or when the command exits with 0; nacked otherwise.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    failed = cli_run.follow(session, stream, command or [], credit, lease_ms, exit_after, idle)
    if failed:
        note(f"{failed} failed and went back")


@app.command("stats")
@common
def stats(
    session: Session,
    stream: Annotated[str | None, typer.Argument(help="One stream; all without.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between.")] = 2.0,
) -> None:
    """Figures of streams: what is ready, leased, dead, how fast, how old."""
    client = _client(session)
    while True:
        answer = client.get("/v1/stats", stream=stream)
        if stream is not None:
            answer = {"streams": [{"id": stream, "stats": answer}]}
        rows = [{"id": one["id"], **one["stats"]} for one in answer["streams"]]
        if not session.machine:
            for row in rows:
                row["id"] += " (paused)" if row["paused"] else ""
        session.table(rows, FIGURES, empty="no streams yet; 'agentlip courier enqueue' makes one")
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(every)


@app.command("peek")
@common
def peek(
    session: Session,
    stream: StreamArgument,
    state: Annotated[
        str | None, typer.Option("--state", help="ready, delayed, leased or dead.")
    ] = None,
    limit: LimitFlag = 20,
    id_: Annotated[str | None, typer.Option("--id", help="This one, whatever its state.")] = None,
) -> None:
    """Envelopes of a stream, without taking them."""
    if id_ is not None:
        kept = _client(session).get("/v1/envelope", stream=stream, id=id_)
        session.answer(kept, msgspec.json.format(msgspec.json.encode(kept)).decode())
        return
    _list(session, stream, state, limit)


@dead.command("list")
@common
def list_dead(session: Session, stream: StreamArgument, limit: LimitFlag = 50) -> None:
    """Dead letters, with reason, tries and the last error."""
    _list(session, stream, "dead", limit)


@dead.command("redrive")
@common
def redrive(
    session: Session,
    stream: StreamArgument,
    id_: IdsFlag = None,
    type_: TypeFlag = None,
    sender: FromFlag = None,
    reason: ReasonFlag = None,
    rate: RateFlag = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Give dead letters a new life at the tail of their stream."""
    chosen = _selection(stream, id_, type_, sender, reason, dry_run)
    if rate is not None:
        chosen["rate"] = rate
    answer = _client(session).post("/v1/streams/redrive", chosen)
    verb = "would redrive" if dry_run else "redrove"
    fate = "to come" if rate is not None else "stay, for the stream is full"
    left = f", {answer['remaining']} {fate}" if answer.get("remaining") else ""
    session.answer(answer, f"{verb} {answer['count']}{left}")


@dead.command("purge")
@common
def purge(
    session: Session,
    stream: StreamArgument,
    id_: IdsFlag = None,
    type_: TypeFlag = None,
    sender: FromFlag = None,
    reason: ReasonFlag = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Remove dead letters for good. Asks for the stream's name before."""
    chosen = {**_selection(stream, id_, type_, sender, reason, dry_run), "state": "dead"}
    _purge(session, chosen, yes)


@app.command("purge")
@common
def purge_stream(
    session: Session,
    stream: StreamArgument,
    id_: IdsFlag = None,
    type_: TypeFlag = None,
    sender: FromFlag = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Remove waiting envelopes (ready and delayed) for good; leased ones stay.

    Asks for the stream's name before.
    """
    _purge(session, _selection(stream, id_, type_, sender, None, dry_run), yes)


@app.command("pause")
@common
def pause(
    session: Session,
    stream: StreamArgument,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.001, help="Seconds; without: until resumed.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="A time of ISO 8601; UTC without a zone.")
    ] = None,
) -> None:
    """No more deliveries from a stream; producers may go on."""
    given = {"seconds": seconds, "until": until}
    body = {name: value for name, value in given.items() if value is not None}
    answer = _client(session).post("/v1/streams/pause", {"stream": stream, **body})
    told = f" until {answer['until']}" if answer.get("until") else ""
    session.answer(answer, f"paused {stream}{told}")


@app.command("resume")
@common
def resume(session: Session, stream: StreamArgument) -> None:
    """Deliver from a stream again."""
    answer = _client(session).post("/v1/streams/resume", {"stream": stream})
    session.answer(answer, f"resumed {stream}")


@rules.command("check")
@common
def check_rules(
    session: Session,
    file: Annotated[Path, typer.Argument(help="A settings file.")] = Path("agentlip.toml"),
) -> None:
    """Are the triggers of a settings file right? Needs no running appliance."""
    problems, count = cli_run.problems_of(file)
    for problem in problems:
        note(problem)
    session.answer(
        {"rules": count, "problems": problems}, f"{count} rules, {len(problems)} problems"
    )
    if problems:
        raise typer.Exit(1)


@rules.command("dry-run")
@common
def try_rules(
    session: Session,
    stream: StreamArgument,
    envelope: Annotated[str, typer.Argument(help="The envelope's JSON; - reads it from stdin.")],
) -> None:
    """Which triggers an envelope would fire, and why not the others. Inserts nothing."""
    text = sys.stdin.read() if envelope == "-" else envelope
    answer = _client(session).post("/v1/rules/dry-run", {"to": stream, "envelope": _json(text)})
    session.table(
        answer["rules"],
        [("FIRES", "fires"), ("RULE", "rule"), ("WHY", "why")],
        empty="no rules; they stand under [[courier.triggers]] in agentlip.toml",
    )


@app.command("pipe")
@common
def pipe(
    session: Session,
    socket: Annotated[
        Path | None, typer.Option("--socket", help="Listen here instead of stdin and stdout.")
    ] = None,
) -> None:
    """The control protocol, one JSON object a line, for a kernel or another process."""
    cli_run.serve_pipe(session, socket)


@app.command("skill")
@common
def skill(
    session: Session,
    name: Annotated[str, typer.Argument(help="git.diff is the one there is.")],
    repository: Annotated[Path, typer.Option("--repository", help="A git work tree.")] = Path(),
    stream: Annotated[str, typer.Option("--stream")] = "skills/git.diff",
    exit_after: Annotated[int | None, typer.Option("--exit-after", min=1)] = None,
) -> None:
    """Answer git.diff.request envelopes with git.diff.result, from a local repository."""
    from appliance.courier.cli_skill import serve_git_diff

    if name != "git.diff":
        raise Invalid("the only skill is git.diff")
    serve_git_diff(session, repository.resolve(), stream, exit_after)


def _purge(session: Session, chosen: dict[str, Any], yes: bool) -> None:
    """For good, so that a name is typed before; --yes is for programs."""
    client = _client(session)
    stream, dry_run = chosen["stream"], chosen["dryRun"]
    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise Invalid(
                "nobody is here to confirm a purge", hint="look with --dry-run, then say --yes"
            )
        count = client.post("/v1/streams/purge", {**chosen, "dryRun": True})["count"]
        note(f"This removes {count} envelopes for good. Type the name of the stream:")
        if sys.stdin.readline().strip() != stream:
            raise Invalid("that is not its name; nothing was removed")
    answer = client.post("/v1/streams/purge", chosen)
    verb = "would purge" if dry_run else "purged"
    session.answer(answer, f"{verb} {answer['count']}")


def _client(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace))


def _list(session: Session, stream: str, state: str | None, limit: int) -> None:
    answer = _client(session).get("/v1/peek", stream=stream, state=state, limit=limit)
    rows = answer["envelopes"]
    if not session.machine:
        for row in rows:
            row["type"] = row["envelope"].get("type")
            row["reason"] = " ".join(filter(None, (row.get("reason"), row.get("error"))))
    session.table(rows, LISTED, empty="none")
    if answer["has_more"] and not session.machine:
        note(f"(the first {len(rows)}; --limit asks for more)")


def _selection(
    stream: str,
    ids: list[str] | None,
    type_: str | None,
    sender: str | None,
    reason: str | None,
    dry_run: bool,
) -> dict[str, Any]:
    given = {"ids": ids, "type": type_, "from": sender, "reason": reason}
    named = {name: value for name, value in given.items() if value is not None}
    return {"stream": stream, "dryRun": dry_run, **named}


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise Invalid("that is not JSON", hint="""for example '{"wave": "B"}'""") from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Invalid("a header is NAME=VALUE")
    return name, value


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise KeyboardInterrupt
