"""Tables fit a terminal of 80 columns, and `--wide` cuts nothing."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cli.test_terminal_output import on_terminal
from tests.doctor.used import SETTINGS, use
from tests.support.command_outputs import every_command
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

WIDTH = 80
ARGUMENTS = {
    "topic list": ("--channel", "general"),
    "search": ("message",),
    "mesh members": ("lab",),
    "mesh topics": ("lab",),
    "mesh webhooks": ("lab",),
    "broker history": ("lab",),
    "jobs history": ("nightly",),
    "inbox topics": ("--mesh", "lab"),
    "inbox peers": ("--mesh", "lab"),
    "attachment list": ("--topic-id", "TOPIC"),
    "webhook deliveries": ("WEBHOOK",),
    "plugin found": ("--message-id", "MESSAGE"),
    "archive search": ("DIR", "word"),
}
ELSEWHERE = {
    "agent logs": "needs an agent that ran",
    "archive search": "needs an archive",
    "backup upload": "needs a target",
    "notify test": "sends a message",
    **dict.fromkeys(
        ("network group changes", "network group invitations", "network group list",
         "network group members", "network group send"), "needs an agent with a relay",
    ),
    "top": "is drawn again and again",
    "worker list": "needs a repository", "worker stats": "needs a repository",
    "worker status": "needs a repository", "bus claims": "needs a bus of the caller's",
    "bus ready": "needs a bus of the caller's", "bus cursor list": "needs a bus of the caller's",
}  # fmt: skip
"""Commands whose tables only other tests print: the same function cuts them."""


def functions_in(value: Any) -> Iterator[Any]:
    """Yield a callback and the functions that it wraps."""
    yield value
    for cell in getattr(value, "__closure__", None) or ():
        if inspect.isfunction(cell.cell_contents):
            yield from functions_in(cell.cell_contents)


def listings() -> list[str]:
    """The commands that print a table, as their source says."""
    return sorted(
        name.removeprefix("agentlip ")
        for name, command in every_command()
        if any(".table(" in inspect.getsource(each) for each in functions_in(command.callback))
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    workspace = tmp_path_factory.mktemp("wide") / "w"
    use(workspace)
    hub = ServedHub(workspace, "--no-limits", settings=SETTINGS)
    with hub.running():
        succeed("backup", "create", cwd=workspace)
        yield hub


def given(hub: ServedHub, name: str) -> list[str]:
    """The arguments of a listing, with ids of this workspace."""
    ids = {
        "TOPIC": "SELECT topic_id FROM topic_attachments",
        "MESSAGE": "SELECT id FROM messages", "WEBHOOK": "SELECT id FROM x_webhooks",
    }  # fmt: skip
    return [
        str(hub.rows(ids[word])[0][0]) if word in ids else word for word in ARGUMENTS.get(name, ())
    ]


@pytest.mark.parametrize("name", [*sorted(set(listings()) - ELSEWHERE.keys()), "doctor list"])
def test_table_fits_the_terminal_and_wide_cuts_nothing(served: ServedHub, name: str) -> None:
    words = [*name.split(), *given(served, name)]
    shown = on_terminal(*words, cwd=served.workspace, columns=WIDTH).splitlines()
    assert not [line for line in shown if line.startswith("Error")], shown
    assert [line for line in shown if cell_len(line) > WIDTH] == []
    wide = on_terminal(*words, "--wide", cwd=served.workspace, columns=WIDTH).splitlines()
    assert len(wide) == len(shown)
    for cut, whole in zip(shown, wide, strict=True):
        assert cell_len(whole) <= WIDTH or cut.endswith("…") or cell_len(cut) < cell_len(whole)
    before = on_terminal("--wide", *words, cwd=served.workspace, columns=WIDTH).splitlines()
    assert (max(map(cell_len, before)) > WIDTH) == (max(map(cell_len, wide)) > WIDTH)


def test_every_listing_is_in_the_sweep_or_has_a_reason() -> None:
    assert set(listings()) >= ELSEWHERE.keys() | ARGUMENTS.keys()
    assert len(listings()) > 35


def test_message_is_readable_behind_two_times(served: ServedHub) -> None:
    body = {
        "to": ["ann"],
        "ack_by_seconds": 600,
        "content_raw": "please review",
        "sender": "tester",
    }
    (topic,) = served.rows("SELECT id FROM topics LIMIT 1")[0]
    served.made(served.http.post("/api/v1/messages", {"topic_id": topic, **body}))
    words = "inbox", "mine", "--as", "ann"
    shown = on_terminal(*words, cwd=served.workspace, columns=WIDTH).splitlines()
    assert [line.endswith("please review") for line in shown] == [False, True]


def test_piped_output_is_whole(served: ServedHub) -> None:
    piped = agentlip("audit", "list", cwd=served.workspace).out.splitlines()
    assert [line for line in piped if line.endswith("…")] == []
    assert max(map(len, piped)) > WIDTH
