"""`-` in the place of a text stands for standard input, in every command that takes a text."""

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

TEXT = "Größe: first line\nsecond line"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        hub.topic(hub.channel("general"), "news")
        hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
        pubkey = hub.http.get("/v1/identity").body["pubkey"]
        hub.made(hub.http.post("/broker/v1/meshes/lab/topics", {"name": "news"}))
        hub.made(hub.http.post("/broker/v1/meshes/lab/members", {"pubkey": pubkey, "name": "me"}))
        yield hub


def ask(hub):
    made = agentlip("ask", "create", "Why?", "--sender", "ci", "--json", cwd=hub.workspace)
    return made.json["id"]


def message(hub):
    topic = ("--channel", "general", "--topic", "news")
    words = ("--sender", "me", "--content", "before", "--json")
    return agentlip("msg", "send", *topic, *words, cwd=hub.workspace).json["message_id"]


COMMANDS = {
    "msg send": lambda hub: (
        "--channel", "general", "--topic", "news", "--sender", "me", "--content", "-",
    ),
    "msg edit": lambda hub: (message(hub), "--content", "-"),
    "ask create": lambda hub: ("-", "--sender", "ci"),
    "ask answer": lambda hub: (ask(hub), "-"),
    "outbox send": lambda hub: ("#news", "-", "--mesh", "lab"),
    "bus send": lambda hub: ("note", "-", "--agent", "ada"),
    "courier enqueue": lambda hub: ("builds", "-"),
}  # fmt: skip
JSON = {"bus send", "courier enqueue"}  # these take JSON


@pytest.mark.parametrize("command", COMMANDS)
def test_text_comes_from_standard_input(hub, command):
    arguments = COMMANDS[command](hub)
    text = '"first"' if command in JSON else TEXT
    done = agentlip(*command.split(), *arguments, cwd=hub.workspace, stdin=(text + "\n").encode())
    assert done.code == 0, done
    if command.startswith("msg"):
        listed = hub.http.get("/api/v1/messages?channel_id=general").body["messages"]
        assert TEXT in [row["content_raw"] for row in listed]
