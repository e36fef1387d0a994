"""`agentlip agent`: wake an agent when entries wait for it; pause, resume and watch agents."""

import os
import shlex
import signal
import threading
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, note, plain, plain_app
from appliance.hub.agents.cli_hooks import answer_hook, hooks
from appliance.hub.cli_reach import KeyFlag, segment
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import ApplianceError, Invalid

app = plain_app(
    "Agents that are woken by their inbox: run, status, pause, resume, report, logs.\n\n"
    "Example: agentlip agent run ada -- ./ada.sh",
    "Messages/agent",
)
app.add_typer(hooks, name="hooks")
app.command("hook")(answer_hook)
PATH = "/api/v1/agents"
CLOCK = SystemClock()
STREAMS_MAX = 8  # each is a connection

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")]


@app.command("run")
def run_agent(
    session: Session,
    name: NameArgument,
    command: Annotated[list[str], typer.Argument(help="The command for a turn, after --.")],
    text: Annotated[
        bool,
        typer.Option("--text", help="Give the entries as text on standard input, not as JSON."),
    ] = False,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge a turn's entries if it exits with 0.")
    ] = False,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, max=1440, help="The longest turn.")
    ] = 30.0,
    turns: Annotated[
        int, typer.Option("--turns", min=1, max=3600, help="Most turns in an hour.")
    ] = 60,
    streams: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Also wake for a courier stream's envelopes; repeatable."),
    ] = None,
    bus: Annotated[
        bool, typer.Option("--bus", help="Also wake for the agent's messages on the worker bus.")
    ] = False,
) -> None:
    """Start a command for each batch of inbox entries, one at a time, until it is stopped.

    A turn gets its entries as JSON on standard input and in the file AGENTLIP_ENTRIES, and settles
    them with agentlip inbox ack or decline. Another turn gets the entries that a turn leaves, with
    a reminder; after that, the operator gets a message. A failed turn is repeated, later each time.

    A turn for an envelope or for bus messages acks them by exiting with 0.

    On SIGTERM the turn ends, and the agent's claims on the bus are released.

    Example: agentlip agent run ada --text -- claude -p
    """
    from appliance.hub.agents.running import TIMEOUT_SECONDS, Waking
    from appliance.hub.agents.turn import check_command
    from appliance.hub.agents.turn_runner import Limits, TurnRunner
    from appliance.sdk.http import PATIENT

    check_command(command)
    _check_streams(streams or ())

    def hub() -> Any:
        return session.hub(PATIENT, timeout_seconds=TIMEOUT_SECONDS)

    runner = TurnRunner(hub(), name, command, Limits(turns, minutes * 60, text, ack), CLOCK, note)
    waking = Waking(hub(), runner)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: waking.end())
    sources = _sources(session, runner, hub, streams or (), bus)
    session.note(f"{plain(name)} sleeps until work waits; Ctrl-C ends it")
    if runner.begin():
        for source in sources:
            source.start()
        waking.run()
        for source in sources:
            source.end()
        _release_claims(session, hub(), name)
    for error in filter(None, (source.error for source in sources)):
        raise error


@app.command("status")
def list_agents(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of agents.")] = 200,
) -> None:
    """List agents: state, last report, pause, and entries that wait.

    Example: agentlip agent status
    """
    rows, _ = session.hub().page(PATH, "agents", limit)
    session.table(
        rows,
        [("NAME", "name"), ("STATE", _state), ("SINCE", "state_since"),
         ("REPORTED", "reported_at"), ("OPEN", "open"), ("PAUSE", _pause)],
        empty="no agents; start one with 'agentlip agent run NAME -- COMMAND'",
    )  # fmt: skip


@app.command("pause")
def pause_agent(
    session: Session,
    name: NameArgument,
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    seconds: Annotated[
        int | None, typer.Option("--for", min=1, help="Seconds until it goes on by itself.")
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Pause an agent: no turn starts, and it can't post, claim, receive or wait. A running turn
    goes on.

    Example: agentlip agent pause ada --reason 'deploy freeze' --for 3600
    """
    body = {"reason": reason, "seconds": seconds}
    answer = session.hub().post(f"{PATH}/{segment(name)}/pause", body, idempotency_key)
    session.answer(
        answer["agent"], f"paused {plain(name)}: agentlip agent resume {shlex.quote(name)}"
    )


@app.command("resume")
def resume_agent(session: Session, name: NameArgument, idempotency_key: KeyFlag = None) -> None:
    """Let a paused agent's turns start again.

    Example: agentlip agent resume ada
    """
    answer = session.hub().post(f"{PATH}/{segment(name)}/resume", {}, idempotency_key)
    session.answer(answer["agent"], f"resumed {plain(name)}")


@app.command("report")
def report_usage(
    session: Session,
    tokens: Annotated[
        int, typer.Option("--tokens", min=0, max=10**12, help="Tokens used since the last report.")
    ] = 0,
    cost: Annotated[
        float, typer.Option("--cost", min=0, max=1e12, help="Their cost, in your unit.")
    ] = 0.0,
) -> None:
    """Add to the tokens and the cost that this turn reports at its end.

    Example: agentlip agent report --tokens 1200 --cost 0.04
    """
    from msgspec import to_builtins

    from appliance.hub.agents import usage

    sums = usage.add(os.environ.get(usage.FILE), tokens, cost)
    answer = {name: to_builtins(sums)[name] for name in ("tokens", "cost")}
    session.answer(answer, f"this turn: {sums.tokens} tokens, cost {sums.cost:g}")


@app.command("logs")
def show_turns(
    session: Session,
    name: NameArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="Turns.")] = 20,
    output: Annotated[
        bool, typer.Option("--output", help="Print the end of the newest turn's output.")
    ] = False,
) -> None:
    """List an agent's last turns, newest first.

    Example: agentlip agent logs ada --output
    """
    answer = session.hub().get(f"{PATH}/{segment(name)}/turns", limit=limit)
    if output and answer["turns"]:
        newest = answer["turns"][0]
        session.answer(newest, "\n".join(plain(line) for line in newest["output"].splitlines()))
        return
    session.table(
        answer["turns"],
        [("ID", "id"), ("BEGAN", "began_at"), ("SECONDS", "seconds"), ("OUTCOME", "outcome"),
         ("CODE", "code"), ("TOKENS", lambda row: row["tokens"] or ""),
         ("COST", lambda row: row["cost"] or ""), ("ENTRIES", lambda row: len(row["entries"])),
         ("LEFT", lambda row: len(row["open"]))],
        empty="no turns yet", answer=answer,
    )  # fmt: skip


def _sources(session: Any, runner: Any, hub: Any, streams: Sequence[str], bus: bool) -> list[Any]:
    """Return what wakes the agent beside its inbox. An error interrupts the main thread."""
    from appliance.hub.agents.sources import BusSource, EnvelopeSource
    from appliance.sdk.discovery import find_hub

    main = threading.get_ident()

    def interrupt() -> None:
        signal.pthread_kill(main, signal.SIGTERM)

    def locate() -> Any:
        return find_hub(session.workspace)

    sources: list[Any] = [EnvelopeSource(runner, interrupt, locate, each) for each in streams]
    return sources + [BusSource(runner, interrupt, hub())] * bus


def _check_streams(streams: Sequence[str]) -> None:
    if len(streams) > STREAMS_MAX:
        raise Invalid(f"an agent can wake for up to {STREAMS_MAX} streams", hint="use a pattern")


def _release_claims(session: Any, hub: Any, name: str) -> None:
    from appliance.hub.agents.claims import release_all

    try:
        released = release_all(hub, name)
    except ApplianceError as error:
        session.note(f"claims were not released: {error.message}")
    else:
        session.note(f"{plain(name)} stopped; {released} claims released")


def _state(row: Any) -> str:
    return "paused" if row["pause"] else str(row["state"])


def _pause(row: Any) -> str:
    pause = row["pause"]
    if pause is None:
        return ""
    until = f" until {pause['until']}" if pause["until"] else ""
    return f"by {pause['by']}{until}: {pause['reason'] or 'no reason given'}"
