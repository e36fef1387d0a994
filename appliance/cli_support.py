"""Shared by all command lines: global flags, output, errors, exit codes.

Exit codes (hub spec §0.9): 0 success, 1 general error, 2 conflict, 3 hub not running or connection
failed, 4 authentication failed.
"""

import inspect
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import isnan
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import typer
from typer.main import get_command

from appliance.audit.log.commands import CURRENT, is_act
from appliance.cli_streams import as_failure, open_closed_streams, quiet_stdout
from appliance.kernel.blank import printable
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid, Unavailable, fill_in

Row = Mapping[str, Any]
Columns = Sequence[tuple[str, str | Callable[[Row], Any]]]
"""Headings, each with a row key or with a function that gets the row."""

EXIT_BY_KIND = {"conflict": 2, "lost": 2, "unavailable": 3, "unauthenticated": 4, "forbidden": 4}
EXIT_BY_STATUS = {401: 4, 403: 4, 409: 2, 502: 3, 503: 3, 504: 3}
EXIT_GENERAL = 1
EXIT_UNAVAILABLE = 3
EXIT_INTERRUPTED = 130
EXTRAS = {"cryptography": "network"}  # which extra has a module that a light install lacks
CONFIRMATIONS = ("--yes", "--confirm")  # as a hint: the same command, with all its options
NAMED = ("mesh", "group", "harness")  # whose placeholder means the argument in every hint
SILENT_SECONDS = 1.0  # work that takes less shows no progress
TERMINAL_SECONDS = 0.2  # between two updates to a line on a terminal
CLEAR_LINE = "\r\x1b[K"

WorkspaceFlag = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        help="Workspace directory (default: the nearest one above the current directory).",
        envvar="AGENTLIP_WORKSPACE",
        show_envvar=True,
        path_type=Path,  # also in the context's parameters
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonlFlag = Annotated[bool, typer.Option("--jsonl", help="Print one JSON value per line.")]
WideFlag = Annotated[bool, typer.Option("--wide", help="Don't cut lines at the terminal's width.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from appliance.build import version_line

        write_line(version_line())
        raise typer.Exit


PauseSecondsFlag = Annotated[
    float | None,
    typer.Option("--for", min=0.001, help="Seconds to pause; by default until resumed."),
]
VersionFlag = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Print the version, commit and date.",
        callback=_show_version,
        is_eager=True,
    ),
]


def global_flags(
    version: VersionFlag = False,
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
    as_jsonl: JsonlFlag = False,
    wide: WideFlag = False,
) -> None:
    """Declare the global flags for both command lines; `common` reads them from the context."""
    del version, workspace, as_json, as_jsonl, wide


class Session(msgspec.Struct, frozen=True):
    """One invocation: global flags, and output for people and machines."""

    workspace: Path | None = None
    as_json: bool = False
    as_jsonl: bool = False
    wide: bool = False

    @property
    def machine(self) -> bool:
        return self.as_json or self.as_jsonl

    @property
    def datadir(self) -> Any:
        """Return the given workspace's folder, or the one around the current folder. Raises
        WorkspaceNotFound."""
        from appliance.workspace.datadir import DataDir, discover

        return discover(Path.cwd()) if self.workspace is None else DataDir(self.workspace)

    def hub(self, retry: Any = None, **options: Any) -> Any:
        """Return a HubClient for the running appliance. `retry`: its Retry, or None for the
        usual one."""
        from appliance.sdk.discovery import find_hub
        from appliance.sdk.http import HubClient

        return HubClient(lambda: find_hub(self.workspace), retry, say=note, **options)

    def sign_in_link(self, retry: Any = None, **command: Any) -> dict[str, str]:
        """Return a `link` that signs a browser in, once; `command` has the CreateInvitation
        fields."""
        from appliance.sdk.discovery import find_hub

        made = self.hub(retry).post("/api/v1/invitations", command, "")
        link = f"{find_hub(self.workspace).url}/ui/#invite={made['secret']}"
        return {"link": link, "expires_at": made["expires_at"]}

    def answer(self, value: Any, sentence: str) -> None:
        """Print one result: JSON for machines, a sentence for people."""
        CURRENT.get().outcome["answer"] = value
        write_line(_json(value) if self.machine else sentence)

    def note(self, text: str) -> None:
        """Print a line for people to standard error; nothing for machines."""
        if not self.machine:
            note(text)

    def line(self, row: Row, columns: Columns) -> None:
        """Print one row in an endless list, at once."""
        if self.machine:
            write_now(msgspec.json.encode(row))
            return
        text = "  ".join(plain(value_of(row, key)) for _, key in columns)
        write_now(self.fitting(text).encode())

    def fitting(self, text: str) -> str:
        """Cut `text` to the terminal's width; not for a file or pipe, nor with `--wide`."""
        from rich.cells import cell_len, set_cell_size

        width = shutil.get_terminal_size().columns
        if self.wide or not sys.stdout.isatty() or cell_len(text) <= width:
            return text
        return set_cell_size(text, width - 1) + "…"

    def table(self, rows: Sequence[Row], columns: Columns, empty: str, answer: Any = None) -> None:
        """Print a list. `answer`: the value that `--json` prints instead of the rows."""
        if self.as_jsonl:
            for row in rows:
                write_line(_json(row))
        elif self.as_json:
            write_line(_json(rows if answer is None else answer))
        elif not rows:
            note(empty)
        else:
            lines = list(_align(rows, columns))
            if any(self.fitting(line) != line for line in lines):
                lines = list(_align(rows, columns, minutes=True))
            for line in lines:
                write_line(self.fitting(line))


class CommandGroup(typer.Typer):
    """A Typer app whose commands get the global flags as their first argument, a Session."""

    def command(  # type: ignore[override]
        self, name: str | None = None, flags: type[msgspec.Struct] | None = None, **options: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Add a command. `flags` declares options, which the command gets as further keyword
        arguments."""
        register = super().command(name, **options)
        return lambda function: register(common(function, flags))


def plain_app(text: str | None = None, listed: str | None = None) -> CommandGroup:
    """Make a command group with plain text help, which is fast and fits pipes and small
    terminals.

    `listed`: the command's HEADING/NAME in `agentlip --help`.
    """
    heading, name = listed.split("/") if listed else (None, None)
    return CommandGroup(
        name=name, help=text, rich_help_panel=heading, rich_markup_mode=None, add_completion=False,
        no_args_is_help=text is not None,
    )  # fmt: skip


def common(
    function: Callable[..., None], flags: type[msgspec.Struct] | None = None
) -> Callable[..., None]:
    """Give a command the global flags as its first argument, a Session.

    A flag counts in every position: before or after the subcommand.
    """
    if hasattr(function, "__signature__"):  # already present
        return function

    def entry(
        ctx: typer.Context,
        workspace: Path | None,
        as_json: bool,
        as_jsonl: bool,
        wide: bool,
        **given: Any,
    ) -> None:
        above = ctx.find_root().params
        session = Session(
            workspace=workspace or above.get("workspace"),
            as_json=as_json or bool(above.get("as_json")),
            as_jsonl=as_jsonl or bool(above.get("as_jsonl")),
            wide=wide or bool(above.get("wide")),
        )
        _refuse_nan(ctx, given)
        with _own_hint(ctx.command_path, given):
            if not is_act(ctx.command_path, given):
                function(session, **given)
                return
            from appliance.audit.log.offline import record_command

            with record_command(ctx.command_path, session.workspace, given):
                function(session, **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = list(inspect.signature(global_flags).parameters.values())[1:]
    parameters = [
        inspect.Parameter("ctx", kind, annotation=typer.Context),
        *(option.replace(kind=kind) for option in own if option.name != "flags"),
        *(
            inspect.Parameter(field.name, kind, annotation=field.type, default=field.default)
            for field in (msgspec.structs.fields(flags) if flags else ())
        ),
        *(option.replace(kind=kind) for option in shared),
    ]
    entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    entry.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    entry.__name__ = function.__name__
    entry.__doc__ = function.__doc__
    return entry


@contextmanager
def _own_hint(command: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Give wrong arguments a hint for this command line, in place of the one for HTTP, and every
    hint the mesh, group or harness that the command line names."""
    try:
        yield
    except ApplianceError as error:
        hint = f"{command} --help" if error.hint == Invalid.default_hint else error.hint
        error.hint = fill_in(hint, {name: given.get(name) for name in NAMED})
        (getattr(error, "body", None) or {})["hint"] = error.hint
        raise


def _refuse_nan(ctx: typer.Context, given: Mapping[str, Any]) -> None:
    """Refuse `nan`, which no range excludes."""
    for name, value in given.items():
        if isinstance(value, float) and isnan(value):
            raise Invalid(f"{name}: nan is not a number", hint=f"{ctx.command_path} --help")


def run(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    """Run one command line. Every error becomes a message and an exit code."""
    machine = "--json" in arguments or "--jsonl" in arguments
    open_closed_streams()
    try:
        code = get_command(app).main(list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ApplianceError as error:
        if error.hint in CONFIRMATIONS:
            error.hint = shlex.join((name, *arguments, error.hint))
        return report_error(error, machine)
    except (BrokenPipeError, SystemExit) as end:
        # The output's reader is gone (`agentlip … | head`), which typer makes a SystemExit.
        if not any(isinstance(cause, BrokenPipeError) for cause in (end, end.__context__)):
            raise
        quiet_stdout()
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except typer.Abort:
        return EXIT_GENERAL
    except UnicodeError:
        hint = "use text in UTF-8 in arguments, variables and files"
        return report_error(Invalid("a text is not valid UTF-8", hint=hint), machine)
    except OSError as error:
        return report_error(as_failure(error), machine)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        hint = f"pip install 'agentlip[{EXTRAS[error.name]}]'"
        return report_error(Unavailable(f"{error.name} is not installed", hint=hint), machine)
    except Exception as error:
        # typer's usage errors have exit code 2, which means a conflict here.
        if not hasattr(error, "format_message"):
            raise
        return _tell_usage(error, machine)


def report_error(error: ApplianceError, machine: bool) -> int:
    """Write `error` to standard error and return the exit code for its kind."""
    if machine:
        note(_json(getattr(error, "body", None) or error.to_body()))
    else:
        current = error.details.get("current", error.extra.get("current_version"))
        version = f" (current: {current})" if current is not None else ""
        note(f"Error: {plain(error.message)}{version}")
        if error.hint:
            note(f"Hint: {plain(error.hint)}")
    own = getattr(error, "exit_code", None)
    if own is not None:
        return int(own)
    status = getattr(error, "http_status", None)  # a forwarded HTTP response's status
    if status is not None:
        return EXIT_BY_STATUS.get(status, EXIT_GENERAL)
    return EXIT_BY_KIND.get(error.kind, EXIT_GENERAL)


def _tell_usage(error: Any, machine: bool) -> int:
    """Write a typer usage error in our own error format."""
    text = str(error.format_message()) or "incomplete command"
    message = text[:1].lower() + text[1:].removesuffix(".")
    if type(error).__name__ == "NoArgsIsHelpError":
        note(message)
        return EXIT_GENERAL
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context is not None else "agentlip --help"
    return report_error(Invalid(message, hint=hint), machine)


@contextmanager
def until_signalled() -> Iterator[None]:
    """End an endless command normally on Ctrl-C and SIGTERM."""

    def end(*_: object) -> None:
        for number in numbers:  # a second signal is ignored
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGINT)
    with suppress(KeyboardInterrupt):
        for number in numbers:
            signal.signal(number, end)
        yield


def write_line(text: str) -> None:
    _write(sys.stdout, text)


def write_now(line: bytes) -> None:
    """Write a line and flush it."""
    ProgressLine.clear()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


class ProgressLine:
    """The progress of long work on standard error: one line that the next output overwrites.

    Only on a terminal. Without `wanted` it shows nothing.
    """

    drawn: ClassVar[bool] = False

    def __init__(self, clock: Clock, wanted: bool = True) -> None:
        self._wanted = wanted and sys.stderr.isatty()
        self._clock = clock
        self._next = clock.monotonic() + SILENT_SECONDS

    def show(self, text: str, *, at_once: bool = False) -> None:
        now = self._clock.monotonic()
        if not self._wanted or (now < self._next and not at_once):
            return
        self._next = now + TERMINAL_SECONDS
        self.clear()
        _write(sys.stderr, text, end="")
        sys.stderr.flush()
        ProgressLine.drawn = True

    @classmethod
    def clear(cls) -> None:
        """Remove the line. Every output does so first."""
        if cls.drawn:
            cls.drawn = False
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()


def note(text: str) -> None:
    """Print a line for people to standard error."""
    _write(sys.stderr, text)


def _write(stream: Any, text: str, end: str = "\n") -> None:
    ProgressLine.clear()
    # A terminal without UTF-8 gets question marks instead of a traceback.
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding) + end)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_TIME = r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d{3}Z$"


def _align(rows: Sequence[Row], columns: Columns, *, minutes: bool = False) -> Iterator[str]:
    """Yield a table's lines. `minutes`: times without seconds."""
    from rich.cells import cell_len, set_cell_size

    lines = [[heading for heading, _ in columns]]
    lines += [[plain(value_of(row, key)) for _, key in columns] for row in rows]
    if minutes:
        lines = [[re.sub(_TIME, r"\1 \2Z", text) for text in line] for line in lines]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [set_cell_size(text, width) for text, width in zip(line, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def value_of(row: Row, key: str | Callable[[Row], Any]) -> Any:
    return row.get(key) if isinstance(key, str) else key(row)


TEXT_BYTES_MAX = 65_536  # a message or an answer


def text_of(value: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return an argument's text: `-` stands for standard input, up to a limit, as UTF-8."""
    if value != "-":
        return value
    raw = sys.stdin.buffer.read(bytes_max + 2).removesuffix(b"\n")
    if len(raw) > bytes_max:
        raise Invalid(f"more than {bytes_max:,} bytes on standard input", hint="send it in parts")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(
            "standard input is not UTF-8", hint="convert it: iconv -f LATIN1 -t UTF-8"
        ) from None


WHSEC = 'echo "whsec_$(openssl rand -base64 32)"'
PKCS8 = "openssl genpkey -algorithm ed25519 -outform DER | base64 -w0"


def read_secret(file: Path, option: str = "--secret-file", command: str = WHSEC) -> str:
    """Return the content of an option's secret file. `command` prints a new secret."""
    from appliance.kernel.config import BadSettings, secret

    try:
        return secret(str(file), option)
    except BadSettings as error:
        made = None if os.path.lexists(file) else f"{command} > {shlex.quote(str(file))}"
        raise Invalid(error.message, hint=made or error.hint) from None


def plain(value: Any) -> str:
    """Return `value` on one line, with control characters replaced."""
    if value is None:
        return "-"
    text = str(value).replace("\r\n", "\n").replace("\n", " ↵ ").replace("\t", " ")
    return printable(text)
