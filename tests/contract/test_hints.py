"""Commands named in our texts exist: every hint, every line of help, every printed step."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from typer.main import get_command

from appliance import cli, cli_daemon
from tests.contract.test_walls import ROOT, parsed, tracked

PROGRAMS: dict[str, Any] = {
    "agentlip": get_command(cli.app),
    "agentlipd": get_command(cli_daemon.app),
}
# A command with what follows on the same line: words, options, and what they are given.
COMMAND = re.compile(r"(?<![\w./-])(agentlipd?)((?: +[^\s'\"`|;()]+)*)")
WORD = re.compile(r"[a-z][a-z-]*")
OPTION = re.compile(r"--[a-z][a-z-]+")
PRODUCT = ("appliance", "doctor", "ops", "spark")
PLAIN = ("ops/up", "ops/down", "ops/demo", "ops/engine", "ops/image",
         "ops/docker-entrypoint", "ops/compose.yaml", "ops/agentlip.toml")  # fmt: skip
ALERTS = tomllib.loads((ROOT / "ops/monitoring/slo.toml").read_text(encoding="utf-8"))["alert"]
ENDS_SENTENCE = (",", ".", ":", ";", "?", "…")


@cache
def texts() -> list[tuple[str, str]]:
    return list(find_texts())


def find_texts() -> Iterator[tuple[str, str]]:
    """(file:line, text) of every string of the product that may be shown to somebody."""
    for file in sorted(tracked("*.py")):
        position = file.relative_to(ROOT)
        if position.parts[0] not in PRODUCT:
            continue
        tree = parsed(file)
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
                  for part in ast.walk(node) if part is not node}  # fmt: skip
        for node in ast.walk(tree):
            if id(node) in inside:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "VALUE"
                    for part in node.values
                ]
                yield f"{position}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{position}:{node.lineno}", node.value

    for name in PLAIN:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            yield f"{name}:{number}", line


@pytest.mark.parametrize(
    "action",
    [
        action
        for action in sorted({alert["action"] for alert in ALERTS})
        if not action.startswith("agentlip doctor")  # it needs no argument
    ],
)
def test_action_of_an_alert_can_be_pasted(action):
    """Nothing that the command needs is missing."""
    for line in action.split(", then "):
        program, *words = line.split()
        command = PROGRAMS[program]
        while hasattr(command, "list_commands") and words:
            command = command.get_command(typer.Context(command), words.pop(0))
        command.make_context(program, words)


def problem(program: str, rest: str) -> str | None:
    """What is wrong with a command as written; None if it exists with these options.

    Words after the command are its arguments, or the rest of a sentence.
    """
    command = PROGRAMS[program]
    context = typer.Context(command)
    known = set(options(command, context))
    named = program
    for word in rest.split():
        ended = word.endswith(ENDS_SENTENCE)
        word = word.rstrip("".join(ENDS_SENTENCE))
        if word.startswith("--"):
            option = OPTION.match(word)
            if option and option[0] not in known | {"--help"}:
                return f"{named} has no option {option[0]}"
        elif hasattr(command, "list_commands") and not known_word(command, context, word):
            if WORD.fullmatch(word) and named == program and not ended:
                return None  # `agentlip` in a sentence about the program
            if WORD.fullmatch(word) and not getattr(command, "invoke_without_command", False):
                return f"{named} has no command {word}"
            return None
        elif hasattr(command, "list_commands"):
            command = command.get_command(context, word)
            context = typer.Context(command)
            named += f" {word}"
            known |= set(options(command, context))
        if ended:
            return None
    return None


def known_word(command: Any, context: Any, word: str) -> bool:
    return word in command.list_commands(context)


def options(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)


@pytest.mark.slow
def test_commands_that_are_named_exist():
    results, wrong = 0, []
    for position, text in texts():
        for program, rest in COMMAND.findall(text):
            results += 1
            trouble = problem(program, rest)
            if trouble:
                wrong.append(f"{position}: {trouble}: {text.strip()[:80]!r}")
    assert wrong == []
    assert results > 200


def test_documented_commands_exist():
    wrong = []
    for file in sorted(tracked("*.md")):
        for line in re.findall(r"`(agentlipd? [^`]*)`", file.read_text(encoding="utf-8")):
            for command in line.split("$("):
                program, _, rest = command.rstrip(")").partition(" ")
                trouble = problem(program, rest) if program in PROGRAMS else None
                if trouble:
                    wrong.append(f"{file.relative_to(ROOT)}: {trouble}: {line}")
    assert wrong == []


def test_commands_quote_values_for_the_shell():
    """`!r` quotes for Python: in its double quotes, a shell runs `$(…)`."""
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in tracked("*.py")
        if file.relative_to(ROOT).parts[0] in PRODUCT
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.JoinedStr) and COMMAND.search(ast.unparse(node))
        if any(getattr(part, "conversion", -1) == ord("r") for part in node.values)
    ]
    assert wrong == []
