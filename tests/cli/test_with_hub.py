"""Changes through a hub that really serves."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import CommandOutput, agentlip, agentlipd, succeed
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow


def _do(hub: HubProcess, *arguments: object) -> CommandOutput:
    return succeed(*arguments, "--json", cwd=hub.workspace)


@pytest.fixture(scope="module")
def topic_id(hub: HubProcess) -> str:
    _do(hub, "channel", "create", "general", "--description", "all of it")
    made = _do(hub, "topic", "create", "--channel", "general", "Builds").json
    return str(made["topic"]["id"])


def test_send_edit_and_delete_print_their_results(hub: HubProcess, topic_id: str) -> None:
    send = ["msg", "send", "--topic-id", topic_id, "--sender", "a", "--content", "one"]
    sent = _do(hub, *send).json
    assert set(sent) == {"message_id", "event_id"}
    message_id = sent["message_id"]
    edited = _do(hub, "msg", "edit", message_id, "--content", "two", "--expected-version", 1).json
    assert edited["version"] == 2
    late = agentlip(
        "msg", "edit", message_id, "--content", "x", "--expected-version", 1, cwd=hub.workspace
    )
    assert late.code == 2
    assert late.err.splitlines()[0] == "Error: version conflict (current: 2)"
    deleted = _do(hub, "msg", "delete", message_id, "--actor", "a").json
    assert deleted == {"deleted": True, "event_id": sent["event_id"] + 2}
    second = _do(hub, "msg", "delete", message_id, "--actor", "a").json
    assert second == {"deleted": True, "event_id": None}
    gone = agentlip("msg", "edit", message_id, "--content", "x", cwd=hub.workspace)
    assert gone.code == 1


def test_text_arrives_as_it_was_sent(hub: HubProcess, topic_id: str) -> None:
    text = "'; DROP TABLE messages; -- ü 日本 \x1b[31m\n\ttab\n"
    succeed(
        "msg", "send", "--channel", "general", "--topic", "Builds", "--sender", "ü", "--stdin",
        "--json", cwd=hub.workspace, stdin=(text + "\n").encode(),
    )  # fmt: skip
    newest = _do(hub, "msg", "tail", "--topic-id", topic_id, "--limit", 1).json[0]
    assert newest["content_raw"] == text
    assert newest["sender"] == "ü"


def test_empty_standard_input_is_refused(hub: HubProcess, topic_id: str) -> None:
    arguments = ["msg", "send", "--topic-id", topic_id, "--sender", "a", "--stdin"]
    before = _do(hub, "msg", "tail", "--topic-id", topic_id).json
    done = agentlip(*arguments, cwd=hub.workspace, stdin=b"")
    assert (done.code, "standard input is empty" in done.err) == (1, True)
    assert _do(hub, "msg", "tail", "--topic-id", topic_id).json == before


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["channel", "create", ""], "agentlip channel create --help"),
        (["inbox", "profile", "--status", "busy"], "one of: dnd, idle, working"),
        (["msg", "edit", "x"], "agentlip msg edit --help"),
        (["listen", "--cursor-file", "/"], "ls -ld /"),
        (["courier", "rules", "check", "/no"], "agentlip config show"),
        (["courier", "subscribe", ""], "agentlip courier subscribe --help"),
        (["resume"], "agentlip resume --help"),
        (["bus", "tail"], "the first claim or message makes the file: agentlip bus claim --help"),
        (["jobs", "next", "nightly"], "agentlip jobs list"),
        (
            ["incoming", "add", "a", "--template", "teams"],
            "one of: alertmanager, github, gitlab, grafana, healthchecks, json",
        ),
    ],
)
def test_wrong_argument_gets_a_hint_for_this_command(
    hub: HubProcess, arguments: list[str], hint: str
) -> None:
    assert agentlip(*arguments, cwd=hub.workspace).err.splitlines()[1] == f"Hint: {hint}"
    printed = agentlip(*arguments, "--json", cwd=hub.workspace).err
    assert (json.loads(printed)["hint"], "Errno" in printed) == (hint, False)


def test_rules_are_checked_in_the_settings_of_the_workspace(hub: HubProcess) -> None:
    for settings, problems in (("", 0), ("[[courier.triggers]]\nid = 'a'\n", 1)):
        (hub.workspace / "agentlip.toml").write_text(settings)
        checked = agentlip("courier", "rules", "check", cwd=hub.workspace / ".agentlip")
        assert f"{problems} rules, {problems} problems" in checked.out
    (hub.workspace / "agentlip.toml").unlink()


def test_status_of_a_hub_elsewhere_needs_no_workspace(hub: HubProcess, tmp_path: Path) -> None:
    for url, status, code in ((hub.url, "running", 0), ("http://127.0.0.1:1", "unreachable", 3)):
        printed = agentlip("status", cwd=tmp_path, AGENTLIP_URL=url)
        assert (printed.out, printed.code) == (f"{status} {url}\n", code), printed
    refused = agentlip("backup", "list", cwd=tmp_path, AGENTLIP_URL=hub.url)
    assert "Hint: run the command on the hub's machine" in refused.err


def test_missing_secret_file_is_named_with_the_command_that_makes_one(
    hub: HubProcess, tmp_path: Path
) -> None:
    file = tmp_path / "a b"
    reached = ["--relay", "https://example.org", "--endpoint", "https://example.org/in"]
    for arguments, option in (
        (["incoming", "add", "a", "--template", "json"], "--secret-file"),
        (["webhook", "create", "--url", "https://example.org"], "--secret-file"),
        (["mesh", "add-webhook", "lab", "https://example.org"], "--secret-file"),
        (["relay", "pending", "--as", "ada"], "--key-file"),
        (["network", "init", "a", *reached], "--import-key"),
    ):
        refused = agentlip(*arguments, option, str(file), cwd=hub.workspace).err.splitlines()
        problem = f"can't read the secret file {file}: no such file or directory"
        assert refused[0] == f"Error: {option}: {problem}"
        subprocess.run(["sh", "-c", refused[1].removeprefix("Hint: ")], check=True)
        assert len(file.read_bytes()) > 40
        file.unlink()
    file.mkdir()
    kept = agentlip("webhook", "create", "--url", "x", "--secret-file", file, cwd=hub.workspace)
    assert kept.err.splitlines()[1] == f"Hint: ls -ld '{file}'"


def test_inbox_commands_say_what_they_count(hub: HubProcess, topic_id: str) -> None:
    name = "a-rather-long-name"
    for _ in range(4):
        _do(hub, "msg", "send", "--topic-id", topic_id, "--sender", "a", "--content", "x",
            "--to", name)  # fmt: skip
    mine = _do(hub, "inbox", "mine", "--as", name).json["entries"]
    ids = [str(entry["id"]) for entry in mine]
    acknowledged = succeed("inbox", "ack", *ids[:2], "--as", name, cwd=hub.workspace)
    assert acknowledged.out == "acknowledged 2 entries\n"
    again = succeed("inbox", "ack", *ids[1:3], "--as", name, cwd=hub.workspace)
    assert again.out == "acknowledged 1 entry (1 were so before)\n"
    declined = succeed(
        "inbox", "decline", ids[3], "--reason", "no", "--as", name, cwd=hub.workspace
    )
    assert declined.out == f"declined entry {ids[3]}\n"
    shown = succeed(
        "msg", "show", mine[3]["message"]["id"], "--receipts", cwd=hub.workspace
    ).out.splitlines()
    assert shown[0][:80].split()[:6] == ["NAME", "STATE", "BEFORE", "WAKING", "LAST", "SEEN"]
    assert shown[1][:80].split()[4].endswith("Z")


@pytest.mark.parametrize(
    "arguments",
    [
        ["msg", "send", "--topic-id", "topic_none", "--sender", "a", "--content", "x"],
        ["msg", "send", "--topic-id", "../../health", "--sender", "a", "--content", "x"],
        ["msg", "edit", "../channels", "--content", "x"],
        ["topic", "rename", "nope", "--title", "x"],
        ["topic", "create", "--channel", "nope", "x"],
    ],
)
def test_missing_object_is_exit_1(hub: HubProcess, arguments: list[str]) -> None:
    done = agentlip(*arguments, cwd=hub.workspace)
    assert done.code == 1, done
    assert done.err.startswith("Error: ")


def test_remote_hub_is_used_by_url_and_token_file(
    hub: HubProcess, topic_id: str, tmp_path: Path
) -> None:
    send = ["msg", "send", "--topic-id", topic_id, "--sender", "far", "--content", "x"]
    token = str(hub.datadir.token_file)
    succeed(*send, cwd=tmp_path, AGENTLIP_URL=hub.url, AGENTLIP_TOKEN_FILE=token)
    wrong = tmp_path / "token"
    wrong.write_text("f" * 64, encoding="utf-8")
    bad = agentlip(*send, cwd=tmp_path, AGENTLIP_URL=hub.url, AGENTLIP_TOKEN_FILE=str(wrong))
    assert bad.code == 4
    assert "f" * 64 not in bad.err + bad.out
    stream = agentlip("listen", cwd=tmp_path, AGENTLIP_URL=hub.url, AGENTLIP_TOKEN_FILE=str(wrong))
    assert stream.code == 4
    odd = agentlip(*send, cwd=tmp_path, AGENTLIP_URL="ftp://x")
    assert odd.code == 1


def test_status_shows_where_the_hub_is(hub: HubProcess) -> None:
    state = agentlipd("status", "--json", cwd=hub.workspace)
    assert state.code == 0
    fields = {"status", "instance_id", "db_id", "schema_version", "port"}
    assert fields <= set(state.json)
    assert state.json["status"] == "running"
    assert state.json["pid"] == hub.pid
    text = agentlipd("status", cwd=hub.workspace)
    assert text.out.startswith("Status: running\nInstance ID: ")
    line = agentlip("status", cwd=hub.workspace)
    assert line.out.startswith(f"running {hub.url} events=")


# -- listen ------------------------------------------------------------------------------


def test_listen_prints_the_log_up_to_the_requested_event(hub: HubProcess, topic_id: str) -> None:
    sent = _do(hub, "msg", "send", "--topic-id", topic_id, "--sender", "a", "--content", "x").json
    _do(hub, "msg", "delete", sent["message_id"], "--actor", "a")
    log = hub.events()
    last = log[-1]["event_id"]
    output = succeed("listen", "--until-event", last, cwd=hub.workspace)
    assert [event["event_id"] for event in output.lines] == [event["event_id"] for event in log]
    assert output.lines[0]["type"] == "event"
    since = agentlip("listen", "--since", last - 2, "--exit-after", 2, cwd=hub.workspace)
    assert [event["event_id"] for event in since.lines] == [last - 1, last]
    only = agentlip(
        "listen", "--channel", "general", "--topic-id", topic_id, "--name", "message.deleted",
        "--exit-after", 1, cwd=hub.workspace,
    )  # fmt: skip
    assert [event["name"] for event in only.lines] == ["message.deleted"]


def test_listen_continues_at_its_stored_cursor(hub: HubProcess, tmp_path: Path) -> None:
    cursor, ids = tmp_path / "cursor", []
    for _ in range(3):
        listen = ("listen", "--cursor-file", cursor, "--exit-after", 2)
        ids += [event["event_id"] for event in succeed(*listen, cwd=hub.workspace).lines]
    assert sorted(set(ids)) == list(range(1, ids[-1] + 1))
    assert ids[-1] > ids[1], "it does not begin again"
