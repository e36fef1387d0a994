"""Every command with `--json`, run against a served hub: what it printed, by command."""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from appliance import cli, cli_daemon
from tests.support.hubprocess import HubProcess

PRINTS_NO_JSON = {
    "agentlip courier pipe": "speaks its own protocol on standard input and output",
    "agentlip courier skill": "answers envelopes and prints nothing",
    "agentlipd logs": "prints what was logged, whose fields differ from line to line",
    "agentlip mcp": "speaks JSON-RPC on standard input and output",
}
# What only just came to be: its answers are in the tests of its commands, and are promised from
# the first release that has them.
NOT_PROMISED_YET = (
    "agentlip agent", "agentlip archive", "agentlip ask", "agentlip audit", "agentlip backup",
    "agentlip broker", "agentlip ceiling", "agentlip pause", "agentlip pauses", "agentlip resume",
    "agentlip bus", "agentlip export", "agentlip forecast", "agentlip identity", "agentlip inbox",
    "agentlip put", "agentlip get", "agentlip erase",
    "agentlip incoming", "agentlip catch-up", "agentlip msg pin", "agentlip msg pins",
    "agentlip msg unpin", "agentlip topic handoff",
    "agentlip topic reopen", "agentlip topic resolve", "agentlip topic show",
    "agentlip jobs", "agentlip log", "agentlip network",
    "agentlip maintenance", "agentlip mesh", "agentlip migrate", "agentlip notify",
    "agentlip outbox", "agentlip plugin", "agentlip re-enrich", "agentlip recover",
    "agentlip relay", "agentlip report", "agentlip top",
    "agentlip worker",
)  # fmt: skip


def commands() -> set[str]:
    """All whose answers are promised, or have a reason not to be."""
    return {
        name
        for name, _ in every_command()
        if not any(f"{name} ".startswith(f"{new} ") for new in NOT_PROMISED_YET)
    }


def every_command() -> Iterator[tuple[str, Any]]:
    """Every command there is, by walking both command lines."""
    waiting: list[tuple[str, Any]] = [
        ("agentlip", get_command(cli.app)),
        ("agentlipd", get_command(cli_daemon.app)),
    ]
    while waiting:
        name, command = waiting.pop()
        if hasattr(command, "list_commands"):
            context = typer.Context(command)
            for inner in command.list_commands(context):
                waiting.append((f"{name} {inner}", command.get_command(context, inner)))
            if not getattr(command, "invoke_without_command", False):
                continue
        yield name, command


class Recorder:
    """Runs commands in this process, in the hub's workspace, and keeps what they print."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.printed: dict[str, list[Any]] = {}

    def __call__(
        self, name: str, *arguments: Any, code: int = 0, stdin: str = "", lines: bool = False
    ) -> Any:
        """`name` is the command as frozen; its JSON value, or the list of its lines."""
        program, *words = name.split()
        run: Callable[[list[str]], int] = cli.main if program == "agentlip" else cli.main_daemon
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        before, before_dir = sys.stdin, Path.cwd()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        sys.stdin = given
        os.chdir(self.workspace)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                ended = run([*words, *map(str, arguments), "--json"])
        finally:
            os.chdir(before_dir)
            sys.stdin = before
            for number, handler in handlers.items():  # commands that follow have their own
                signal.signal(number, handler)
        text, error = _text(out), _text(err)
        assert ended == code, f"{name} {arguments}: exit {ended}\n{text}\n{error}"
        values = [json.loads(line) for line in text.splitlines()] if lines else [json.loads(text)]
        self.printed.setdefault(name, []).extend(values)
        return values if lines else values[0]


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


def printed_by_all(hub: HubProcess) -> Mapping[str, list[Any]]:
    """Each command once for every form its answer has."""
    run = Recorder(hub.workspace)
    for part in (_hub, _hub_reads, _courier, _webhooks, _tokens, _rest):
        part(run)
    with tempfile.TemporaryDirectory() as folder:
        run.workspace = Path(folder)
        _daemon(run)
    return run.printed


def _hub(run: Recorder) -> None:
    run("agentlip channel create", "general")
    run("agentlip channel create", "described", "--description", "d")
    topic = run("agentlip topic create", "--channel", "general", "one")["topic"]["id"]
    other = run("agentlip topic create", "--channel", "general", "two")["topic"]["id"]
    run("agentlip topic rename", other, "--title", "renamed")
    send = ["--topic-id", topic, "--sender", "s", "--content"]
    first, second, third = (
        run("agentlip msg send", *send, f"word {n}")["message_id"] for n in range(3)
    )
    run("agentlip msg edit", first, "--content", "word edited")
    for _ in range(2):
        run("agentlip msg delete", second, "--actor", "a")
        run("agentlip msg retopic", third, "--to-topic-id", other, "--mode", "one")
    add = ["--topic-id", topic, "--kind", "url", "--value-json", '{"url": "https://example.com"}']
    for _ in range(2):
        run("agentlip attachment add", *add)
    run("agentlip attachment add", *add, "--key", "k", "--source-message-id", first)


def _hub_reads(run: Recorder) -> None:
    run("agentlip channel list")
    topic = run("agentlip topic list", "--channel", "general")[-1]["id"]
    run("agentlip msg tail", "--topic-id", topic)
    page = run("agentlip msg page", "--topic-id", topic)
    run("agentlip msg page", "--topic-id", topic, "--after-id", page[-1]["id"])
    run("agentlip msg page", "--topic-id", topic, "--since", page[-1]["created_at"])
    run("agentlip msg show", page[-1]["id"])
    run("agentlip attachment list", "--topic-id", topic)
    run("agentlip search", "word")
    run("agentlip listen", "--exit-after", 12, lines=True)


def _courier(run: Recorder) -> None:
    for name in ("a", "b", "a"):
        run("agentlip courier enqueue", "work", '{"n": 1}', "--id", name)
    run("agentlip courier enqueue", "work", "-", stdin='{"n": 2}\n{"n": 3}\n')
    run("agentlip courier peek", "work")
    run("agentlip courier peek", "work", "--id", "a")
    run("agentlip courier stats")
    run("agentlip courier stats", "work")
    run("agentlip courier subscribe", "work", "--exit-after", 1, lines=True)
    run("agentlip courier pause", "work")
    run("agentlip courier pause", "work", "--for", 0.5)
    run("agentlip courier resume", "work")
    run("agentlip courier dlq list", "work")
    run("agentlip courier dlq redrive", "work", "--dry-run")
    run("agentlip courier dlq redrive", "work")
    run("agentlip courier dlq purge", "work", "--yes")
    run("agentlip courier purge", "work", "--yes")
    (run.workspace / "rules.toml").write_text("", encoding="utf-8")
    run("agentlip courier rules check", "rules.toml")


def _webhooks(run: Recorder) -> None:
    create = ["--url", "http://127.0.0.1:9/hook"]
    made = run(
        "agentlip webhook create", *create, "--channel", "general", "--after", 0, "--disable"
    )["webhook"]
    other = run("agentlip webhook create", *create, "--name", "message.created")["webhook"]
    run("agentlip webhook list")
    run("agentlip webhook show", made["id"])
    run("agentlip webhook deliveries", made["id"])
    run("agentlip webhook update", made["id"], "--new-secret", "--description", "d")
    run("agentlip webhook update", other["id"], "--disable")
    run("agentlip webhook delete", other["id"])


def _tokens(run: Recorder) -> None:
    made = run("agentlip token create", "--name", "a", "--scope", "hub:read", "--expires", 5)
    limited = ["--name", "b", "--scope", "hub:read", "--channel", "general"]
    run("agentlip token create", *limited)
    run("agentlip token create", "--name", "c", "--scope", "hub:read", "--invite")
    run("agentlip token rotate", made["token"]["id"], "--grace", 60)
    run("agentlip token rotate", made["token"]["id"], "--grace", 0)
    run("agentlip token list")
    run("agentlip token revoke", made["token"]["id"])
    run("agentlip token list")


def _rest(run: Recorder) -> None:
    run("agentlip version")
    run("agentlip status")
    run("agentlip init")
    run("agentlip doctor")
    run("agentlip ui", "--print")
    run("agentlip config show", "http.port")
    run("agentlip doctor list")
    run("agentlip doctor explain", "host.disk")
    run("agentlip doctor clear", "hub")
    run("agentlip doctor repair", "--dry-run")
    run("agentlip doctor repair rebuild", "indexes", "--dry-run")
    run("agentlip mcp config", "claude-code")
    run("agentlip mcp config", "cursor")
    run("agentlipd status")
    run("agentlipd install-service", "--print")
    run("agentlipd uninstall-service", "--name", "agentlip-never-installed")


def _daemon(run: Recorder) -> None:
    """In a workspace of its own, for these start and stop a server there."""
    try:
        for _ in range(2):
            run("agentlipd up", "--port", 0, "--no-limits")
        run("agentlipd restart", "--port", 0, "--no-limits")
    finally:
        for _ in range(2):
            run("agentlipd down")
    run("agentlipd status", code=3)
    run("agentlip status", code=3)
    run("agentlipd reset", "--dry-run")
    run("agentlipd uninstall", "--name", "agentlip-never-installed", "--dry-run")
    run("agentlipd reset", "--yes")
    run("agentlip init")
    run("agentlip doctor bundle", "--out", run.workspace / "bundle.tar.gz")
    run("agentlipd uninstall", "--name", "agentlip-never-installed", "--yes")
