"""Implements `agentlip ask`: questions to people, for the asking side and the answering side."""

from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain, plain_app, text_of
from appliance.hub.cli_reach import KeyFlag, segment
from appliance.kernel.clock import SystemClock

app = plain_app(
    "Questions to people, which are answered exactly once.\n\n"
    "Example: agentlip ask create 'Deploy build 7?' --sender ci --choice yes --choice no --wait 600"
    "\n\nWith --wait, the exit code is 0 for an answer or the default, 2 if the deadline passed"
    " without a default or the ask was cancelled, and 3 while nobody has answered.",
    "People/ask",
)
PATH = "/api/v1/asks"
WAIT_SECONDS = 20.0  # that one request waits
EXIT_NO_ANSWER, EXIT_WAITING = 2, 3
CLOCK = SystemClock()

AskArgument = Annotated[str, typer.Argument(metavar="ID", help="Ask id.")]
SenderFlag = Annotated[
    str | None, typer.Option("--sender", help="Sender name (default: the token's name).")
]
WaitFlag = Annotated[
    float, typer.Option("--wait", min=0, max=86_400, help="Wait up to this many seconds.")
]


@app.command("create")
def create_ask(
    session: Session,
    text: Annotated[str, typer.Argument(help="The question; `-`: from stdin.")],
    sender: Annotated[str, typer.Option("--sender", help="Name of the sender that asks.")],
    choice: Annotated[
        list[str] | None, typer.Option("--choice", help="A possible answer; may be repeated.")
    ] = None,
    default: Annotated[
        str | None, typer.Option("--default", help="The answer if nobody gives one.")
    ] = None,
    deadline: Annotated[
        int | None, typer.Option("--deadline", min=1, help="Seconds until the deadline.")
    ] = None,
    may_answer: Annotated[
        list[str] | None,
        typer.Option("--may-answer", help="Token, mail address or webhook; may be repeated."),
    ] = None,
    blocks: Annotated[
        list[str] | None,
        typer.Option("--blocks", help="Work that waits; may be repeated."),
    ] = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Topic as an id or CHANNEL/TITLE.")
    ] = None,
    wait: WaitFlag = 0.0,
    idempotency_key: KeyFlag = None,
) -> None:
    """Ask a person. A repeated idempotency key gives the first ask, with its answer."""
    body = {
        "text": text_of(text), "sender": sender, "default": default, "deadline_seconds": deadline,
        "topic_id": topic_id, "choices": choice or [], "may_answer": may_answer or [],
        "blocks": blocks or [],
    }  # fmt: skip
    ask = session.hub().post(PATH, body, idempotency_key)["ask"]
    if wait:
        _print_answer(session, ask["id"], wait)
    else:
        session.answer(ask, f"asked {ask['id']}; agentlip ask show {ask['id']} --wait 60")


@app.command("list")
def list_asks(
    session: Session,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", help="`waiting`, `answered`, `defaulted`, `expired` or `cancelled`."
        ),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only asks you may answer.")] = False,
    asker: Annotated[str | None, typer.Option("--asker", help="Only this sender's asks.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum asks.")] = 50,
) -> None:
    """List asks, newest first.

    Example: agentlip ask list --state waiting --mine
    """
    rows, _ = session.hub().page(
        PATH, "asks", limit, state=state, mine="true" if mine else None, asker=asker
    )
    session.table(
        rows,
        [("ID", "id"), ("STATE", "state"), ("ASKER", "asker"), ("DEADLINE", "deadline"),
         ("ANSWER", "answer"), ("TEXT", "text")],
        empty="no asks; ask with 'agentlip ask create TEXT --sender NAME'",
    )  # fmt: skip


@app.command("show")
def show_ask(session: Session, ask_id: AskArgument, wait: WaitFlag = 0.0) -> None:
    """Show an ask, or wait for its answer with --wait."""
    if wait:
        _print_answer(session, ask_id, wait)
        return
    ask = session.hub().get(_path(ask_id))["ask"]
    lines = [f"{ask['id']} {_outcome(ask)}", ask["text"]]
    if ask["choices"]:
        lines.append("choices: " + " | ".join(ask["choices"]))
    if ask["deadline"]:
        then = ask["default"] or "no answer"
        lines.append(f"deadline: {ask['deadline']}, then: {then}")
    if ask["blocks"]:
        lines.append("blocks: " + ", ".join(ask["blocks"]))
    if ask["may_answer"]:
        lines.append("may answer: " + ", ".join(ask["may_answer"]))
    session.answer(ask, "\n".join(plain(line) for line in lines))


@app.command("answer")
def answer_ask(
    session: Session,
    ask_id: AskArgument,
    answer: Annotated[str, typer.Argument(help="A choice, or any text; `-`: from stdin.")],
    sender: SenderFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Answer an ask. Exit code 2 if it is already settled."""
    body = {"answer": text_of(answer), "sender": sender}
    ask = session.hub().post(f"{_path(ask_id)}/answer", body, idempotency_key)["ask"]
    session.answer(ask, _outcome(ask))


@app.command("cancel")
def cancel_ask(
    session: Session,
    ask_id: AskArgument,
    sender: SenderFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Withdraw your ask."""
    body = {"sender": sender}
    ask = session.hub().post(f"{_path(ask_id)}/cancel", body, idempotency_key)["ask"]
    session.answer(ask, f"cancelled {ask_id}")


@app.command("answer-secret")
def show_answer_secret(
    session: Session,
    webhook_id: Annotated[str, typer.Argument(metavar="WEBHOOK", help="Webhook id.")],
) -> None:
    """Print the secret with which a webhook's receiver makes links that answer.

    Example: agentlip ask answer-secret hook_01K…
    """
    shown = session.hub().post(f"/api/v1/webhooks/{segment(webhook_id)}/answer-secret", {})
    session.answer(shown, shown["secret"])


def _print_answer(session: Session, ask_id: str, wait_seconds: float) -> None:
    """Wait, also while the appliance restarts, and exit with the documented code."""
    from appliance.sdk.http import PATIENT

    hub, until = session.hub(PATIENT), CLOCK.monotonic() + wait_seconds
    while True:
        left = max(0.0, until - CLOCK.monotonic())
        ask = hub.get(_path(ask_id), wait=min(left, WAIT_SECONDS))["ask"]
        if ask["state"] != "waiting" or left <= WAIT_SECONDS:
            break
    session.answer(ask, ask["answer"] or _outcome(ask))
    if ask["state"] == "waiting":
        raise typer.Exit(EXIT_WAITING)
    if ask["answer"] is None:
        raise typer.Exit(EXIT_NO_ANSWER)


def _outcome(ask: dict[str, Any]) -> str:
    if ask["settled_at"] is None:
        return "waiting"
    answer = "" if ask["answer"] is None else f": {plain(ask['answer'])}"
    return f"{ask['state']}{answer} ({plain(ask['answered_by'])}, {ask['settled_at']})"


def _path(ask_id: str) -> str:
    return f"{PATH}/{segment(ask_id)}"
