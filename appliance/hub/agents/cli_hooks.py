"""`agentlip agent hooks` and `agentlip agent hook`: commands for agent harnesses."""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.busfile.worker.context import agent_name
from appliance.cli_support import Session, note, plain, plain_app, write_line
from appliance.hub.agents.hooks.answers import HookAnswers, harness_named, read_input
from appliance.hub.agents.hooks.harnesses import HARNESSES
from appliance.kernel.errors import ApplianceError, Invalid

hooks = plain_app("Hooks of agent harnesses: install, remove.")
INPUT_BYTES_MAX = 8 * 1024 * 1024  # a tool's input contains a whole file
SECONDS_MAX = 5.0  # for a hook; the harness waits meanwhile
REQUEST_SECONDS_MAX = 3.0

HarnessArgument = Annotated[
    str, typer.Argument(metavar="HARNESS", help=", ".join(HARNESSES), show_default=False)
]
NameFlag = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Your name (default: the worktree's task, AGENTLIP_AGENT, or the token's name).",
    ),
]
SuccessorFlag = Annotated[
    str | None,
    typer.Option(
        "--hand-over-to",
        metavar="AGENT",
        help="At a session's end, this agent gets a bus message about each released claim.",
    ),
]
UserFlag = Annotated[bool, typer.Option("--user", help="The user's files, not the project's.")]
YesFlag = Annotated[bool, typer.Option("--yes", help="Confirm. Without it nothing is written.")]
PrintFlag = Annotated[
    bool, typer.Option("--print", help="Print the entries only, to add them by hand.")
]


class HookTimeout(BaseException):
    """The hook's time is over. Not an Exception: nothing on the way may catch it."""


@hooks.command("install")
def install_hooks(
    session: Session,
    harness: HarnessArgument,
    user: UserFlag = False,
    name: NameFlag = None,
    successor: SuccessorFlag = None,
    print_only: PrintFlag = False,
    yes: YesFlag = False,
) -> None:
    """Add our hooks and MCP server to a harness's files. Without --yes, show the difference.

    Example: agentlip agent hooks install claude-code --as ada --yes
    """
    from appliance.hub.agents.hooks.versions import check_version

    known = harness_named(harness)
    wanted = _plan_entries(session, harness, name, successor)
    if print_only:
        write_line(_entries(wanted))
        return
    version = check_version(known)
    if version is None:
        session.note(f"{known.program} is not on the PATH, so its version was not checked")
    _change(session, wanted, user=user, yes=yes)
    if yes and known.note:
        session.note(known.note)


@hooks.command("remove")
def remove_hooks(
    session: Session, harness: HarnessArgument, user: UserFlag = False, yes: YesFlag = False
) -> None:
    """Take our hooks and MCP server out of a harness's files. Without --yes, show the difference.

    Example: agentlip agent hooks remove claude-code --yes
    """
    from appliance.hub.agents.hooks.files import Wanted
    from appliance.sdk.mcp_clients import McpServer

    _change(session, Wanted(harness_named(harness), (), "", McpServer()), user=user, yes=yes)


def answer_hook(
    session: Session,
    harness: HarnessArgument,
    name: NameFlag = None,
    successor: SuccessorFlag = None,
) -> None:
    """Answer a harness's event, which is JSON on standard input. Harnesses run this command.

    The exit code is 0, also if the appliance does not answer; 1 for an input in another form.
    """
    from appliance.hub.agents.hooks.state import HookState, state_folder

    known = harness_named(harness)
    raw = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(raw) > INPUT_BYTES_MAX:
        raise Invalid(f"the input has more than {INPUT_BYTES_MAX:,} bytes")
    given = read_input(known, raw)
    answer: Any = {}
    try:
        with _time_limit():
            state = HookState(state_folder())
            answers = HookAnswers(_hub(session), known, name or agent_name(), state, successor)
            answer = answers.answer(given)
    except HookTimeout:
        note(f"agentlip: no answer within {SECONDS_MAX:g} s")
    except (ApplianceError, OSError) as error:
        note(f"agentlip: {plain(str(error))}")
    if answer:
        write_line(msgspec.json.encode(answer).decode())


# -- steps -------------------------------------------------------------------------------------


def _plan_entries(session: Session, harness: str, name: str | None, successor: str | None) -> Any:
    from appliance.hub.agents.hooks.files import Wanted
    from appliance.sdk.mcp_clients import McpServer
    from appliance.sdk.program import program_words, server_words, workspace_words

    own = ["--as", name] if name else []
    own += ["--hand-over-to", successor] if successor else []
    words = [*program_words(), "agent", "hook", harness, *own, *workspace_words(session.workspace)]
    server = McpServer(server_words(session.workspace))
    return Wanted(harness_named(harness), words, shlex.join(words), server)


def _entries(wanted: Any) -> str:
    """Return the project's files, as if there were none yet."""
    from appliance.hub.agents.hooks.files import plan_changes

    nowhere = Path("/nonexistent")
    changes = plan_changes(wanted, nowhere, user=False)
    texts = [f"{change.path.relative_to(nowhere)}:\n{change.after}" for change in changes]
    return "\n".join(texts).rstrip("\n")


def _change(session: Session, wanted: Any, *, user: bool, yes: bool) -> None:
    from appliance.hub.agents.hooks.files import plan_changes, write_changes

    changes = plan_changes(wanted, Path.cwd(), user=user)
    if yes:
        write_changes(changes)
    files = [{"path": str(change.path), "diff": change.diff} for change in changes]
    session.answer({"files": files, "written": yes}, _sentence(changes, yes=yes))


def _sentence(changes: Sequence[Any], *, yes: bool) -> str:
    if not changes:
        return "nothing to change"
    if yes:
        return "\n".join(f"{change.verb} {change.path}" for change in changes)
    return "".join(change.diff for change in changes) + "nothing is written yet: add --yes"


def _hub(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient, Retry

    once = Retry(attempts_max=1)
    return HubClient(lambda: find_hub(session.workspace), once, timeout_seconds=REQUEST_SECONDS_MAX)


@contextmanager
def _time_limit() -> Iterator[None]:
    """End the block with HookTimeout after SECONDS_MAX, wherever it waits."""

    def end(*_: object) -> None:
        raise HookTimeout

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
