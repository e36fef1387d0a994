"""Hooks: matching, input, limits, and what they can send."""

import json
import os
import sys
from contextlib import nullcontext

import msgspec
import pytest

from appliance.child.command import Commands
from appliance.inbox.event import of_fact, of_message
from appliance.inbox.hooks import matching, wire, writes
from appliance.inbox.hooks.service import HookService, HooksNeeds
from appliance.inbox.hooks.settings import HookCommand, HookSettings
from appliance.inbox.wire import InboxMessage
from appliance.kernel.auth import Principal, TokenBook
from tests.support.inbox import ALICE, OWN, InboxFixture, push
from tests.support.plugins import alive
from tests.unit.child.test_command import DAEMON

ECHO = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


class HooksFixture:
    """Hooks over a real inbox. `sent` are the orders that hooks had carried out."""

    def __init__(self, tmp_path, *commands, off_in_ci=False, environment=None, **settings):
        self.inbox = InboxFixture(tmp_path / "ws")
        self.out = tmp_path / "out"
        self.tokens = TokenBook()
        self.sent = []
        needs = HooksNeeds(
            self.inbox.service, self.inbox.service.add_listener, self.inbox.store, self.tokens,
            off_in_ci, lambda _mesh: [OWN.public_hex, "us"], lambda: "http://127.0.0.1:1",
            self.sent.append,
        )  # fmt: skip
        self.service = HookService(
            HookSettings(commands=commands, **settings), needs, self.inbox.clock, self.inbox.log,
            tmp_path, environment or dict(os.environ), Commands(self.inbox.clock),
        )  # fmt: skip
        self.inbox.service.add_listener(self.service.on_event)
        self.inbox.service.hooks_of = self.service.hooks_of

    def receive(self, *pushes):
        for push_ in pushes:
            self.inbox.service.receive(push_)

    def run_all(self):
        """All that waits, one after the other; the outcomes."""
        outcomes = []
        while (job := self.service.next_job()) is not None:
            outcomes.append(self.service.run_job(job))
        return outcomes

    def read(self):
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def runs(self, mesh="default"):
        return self.service.runs(mesh, None, 100).runs


@pytest.fixture
def new_hooks(tmp_path):
    fixtures = []

    def make(*commands, **more):
        fixtures.append(HooksFixture(tmp_path, *commands, **more))
        return fixtures[-1]

    yield make
    for fixture in fixtures:
        fixture.inbox.close()


def python(code, *arguments, on="on-message", **more):
    return HookCommand(on=on, run=(sys.executable, "-c", code, *map(str, arguments)), **more)


def echo(tmp_path, **more):
    return python(ECHO, tmp_path / "out", **more)


# -- who is called -------------------------------------------------------------------------

DM = {"topic": None, "destination_kind": "dm", "destination_ref": OWN.public_hex}


def event(**changed):
    values = msgspec.to_builtins(push(1, **changed))
    values["broker_message_id"] = values.pop("message_id")
    return of_message(InboxMessage(number=1, id="in_1", received_at="", own=False, **values))


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        (of_fact("daemon_disconnect", "default", 1), ["on-disconnect"]),
        (of_fact("daemon_reconnect", "default", 1), ["on-reconnect"]),
        (of_fact("startup", "default", 0), ["on-startup"]),
        (of_fact("peer_join", "default", 1), []),
        (of_fact("hook_executed", "default", 1), []),
    ],
)
def test_names_of_an_event_without_a_message(fact, names):
    assert matching.event_names(fact) == names


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (push(1), ["on-message", "on-topic-alerts"]),
        (push(1, **DM), ["on-message", "on-dm"]),
        (
            push(1, meta={"mentions": [OWN.public_hex]}),
            ["on-message", "on-mention", "on-topic-alerts"],
        ),
        (push(1, meta={"mentions": ["us", 5]}), ["on-message", "on-mention", "on-topic-alerts"]),
        (push(1, meta={"mentions": "us"}), ["on-message", "on-topic-alerts"]),
        (push(1, meta={"mentions": ["them"]}), ["on-message", "on-topic-alerts"]),
    ],
)
def test_names_of_a_message(message, names):
    assert matching.message_names(message, [OWN.public_hex, "us"]) == names


@pytest.mark.parametrize(
    ("on", "scopes", "fits"),
    [
        ("on-message", (), True),
        ("on-topic-alerts", ("topic:alerts:post",), True),
        ("on-dm", ("reply:event", "dm:send:sender"), True),
        ("on-topic-", (), False),
        ("on-weather", (), False),
        ("on-message", ("topic:*:post",), False),
        ("on-message", ("topic:a*:post",), False),
        ("on-message", ("inbox:read",), False),
        ("on-message", ("dm:send:*",), False),
    ],
)
def test_valid_hook_settings(on, scopes, fits):
    given = {"on": on, "run": ["true"], "scopes": scopes}
    with nullcontext() if fits else pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, HookCommand)


SCOPES = ("reply:event", "dm:send:sender", "topic:alerts:post", "topic:builds:post")


def test_scopes_are_bound_to_the_event():
    command = HookCommand(on="on-message", run=("true",), scopes=SCOPES)
    assert matching.grant_scopes(command, event().message) == (
        "reply:event", f"dm:send:{ALICE}", "topic:alerts:post",
    )  # fmt: skip
    assert matching.grant_scopes(command, event(**DM).message) == (
        "reply:event",
        f"dm:send:{ALICE}",
    )
    assert matching.grant_scopes(command, None) == ()


def test_duplicate_message_runs_a_hook_once(new_hooks, tmp_path):
    hooks = new_hooks(echo(tmp_path))
    hooks.receive(push(1), push(1))
    assert hooks.run_all() == ["ok"]
    (input_,) = hooks.read()
    assert input_["hook"] == "on-message"
    assert input_["data"]["body"] == "message 1"
    (run,) = hooks.runs()
    assert (run.outcome, run.exit_code, run.inbox_id) == ("ok", 0, input_["data"]["id"])
    assert hooks.inbox.events[-1].name == "hook_executed"
    assert hooks.run_all() == []


def test_hooks_ignore_other_meshes_and_own_messages(new_hooks, tmp_path):
    hooks = new_hooks(echo(tmp_path, mesh="lab"))
    hooks.receive(push(1), push(2, mesh="lab", sender_pubkey=OWN.public_hex), push(3, mesh="lab"))
    hooks.run_all()
    assert [input_["data"]["body"] for input_ in hooks.read()] == ["message 3"]
    assert hooks.runs() == []
    assert len(hooks.runs("lab")) == 1


@pytest.mark.parametrize(("settings", "enabled"), [({}, False), ({"enabled": "on"}, True)])
def test_hooks_are_off_in_ci_unless_they_are_switched_on(new_hooks, tmp_path, settings, enabled):
    assert new_hooks(echo(tmp_path), off_in_ci=True, **settings).service.enabled == enabled


# -- with what, and for how long -------------------------------------------------------------


def test_hook_environment_has_no_workspace_secret(new_hooks, tmp_path):
    code = "import os, sys; open(sys.argv[1], 'w').write(repr(dict(os.environ)))"
    environment = {"PATH": os.environ["PATH"], "AGENTLIP_TOKEN": "s3cret", "AWS_SECRET": "s3cret"}
    hooks = new_hooks(python(code, tmp_path / "out"), environment=environment)
    hooks.receive(push(1))
    hooks.run_all()
    text = (tmp_path / "out").read_text()
    assert "s3cret" not in text
    assert "AGENTLIP_HOOK_TOKEN" not in text  # nothing was granted
    assert "AGENTLIP_RUN" in text


def test_large_event_is_truncated_and_marked(new_hooks, tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.inbox.hooks.service.EVENT_BYTES_MAX", 8192)
    hooks = new_hooks(echo(tmp_path))
    hooks.receive(push(1, body="\x01" * 60_000, meta={"a": "b" * 9000}), push(2))
    hooks.run_all()
    first, second = hooks.read()
    assert first["_truncated"] is True
    assert 0 < len(first["data"]["body"]) < 60_000
    assert "_truncated" not in second
    assert all(len(line) <= 8192 for line in hooks.out.read_text().splitlines())
    assert [run.truncated for run in hooks.runs()] == [False, True]


@pytest.mark.parametrize(
    ("then", "outcome", "exit_code"),
    [
        ("true", "ok", 0),
        ("exit 7", "failed", 7),
        ("kill -9 $$", "failed", -9),
        ("sleep 600", "timeout", -15),
    ],
)
def test_outcome_of_a_run(new_hooks, tmp_path, monkeypatch, then, outcome, exit_code):
    monkeypatch.setattr(
        "appliance.inbox.hooks.service.RUN_SECONDS_MAX", 2.0 if exit_code == -15 else 60
    )
    hooks = new_hooks(HookCommand(on="on-message", run=("sh", "-c", f"{DAEMON} {then}")))
    hooks.receive(push(1))
    assert hooks.run_all() == [outcome]
    assert (hooks.runs()[0].exit_code, hooks.runs()[0].outcome) == (exit_code, outcome)
    # Nothing is left of it, not even in another session.
    assert not alive(int((tmp_path / "pid").read_text()))


def test_full_queue_drops_runs(new_hooks, monkeypatch):
    monkeypatch.setattr("appliance.inbox.hooks.service.QUEUE_MAX", 2)
    hooks = new_hooks(python("pass", on="on-reconnect"))
    for number in range(5):
        hooks.service.on_event(of_fact("daemon_reconnect", "default", number))
    assert hooks.run_all() == ["ok", "ok"]
    assert len(hooks.inbox.logged("a hook run was dropped: queue full")) == 3


def test_run_interrupted_by_a_crash_is_lost(new_hooks):
    hooks = new_hooks(python("pass"))
    hooks.receive(push(1))
    job = hooks.service.next_job()
    hooks.inbox.store.write(writes.begin, job.id, "on-message", "message", "default", False)
    hooks.inbox.store.write(writes.mark_lost, "running")
    assert hooks.runs()[0].outcome == "lost"


def test_runs_wait_in_the_store_beyond_the_queue(new_hooks, monkeypatch):
    monkeypatch.setattr("appliance.inbox.hooks.service.READ_MAX", 2)
    hooks = new_hooks(python("pass"), python("pass"))
    hooks.receive(*(push(n) for n in range(5)))
    assert [run.outcome for run in hooks.runs()] == ["waiting"] * 10
    assert hooks.run_all() == ["ok"] * 10


def test_waiting_run_is_lost_without_its_command(new_hooks):
    hooks = new_hooks(python("pass"), python("pass", on="on-topic-alerts"))
    hooks.receive(push(1))
    hooks.service.settings = HookSettings(commands=hooks.service.settings.commands[:1])
    assert hooks.run_all() == ["ok"]
    assert [run.outcome for run in hooks.runs()] == ["lost", "ok"]


def test_mutual_replies_of_hooks_end_at_the_hop_limit(new_hooks):
    hooks = new_hooks(python(printed("again"), scopes=("reply:event",)))
    meta, rounds = None, 0
    while True:
        rounds += 1
        hooks.receive(push(rounds, meta=meta))
        if not hooks.run_all():
            break
        meta = hooks.sent[-1].meta
    assert (rounds, meta) == (5, {"agentlip_hops": 4})
    assert hooks.inbox.logged("no hook was run: 4 hooks have replied")


# -- what it may send ------------------------------------------------------------------------


def printed(reply):
    return f"print({json.dumps({'reply': reply})!r})"


def test_a_reply_goes_where_the_message_came_from(new_hooks):
    hooks = new_hooks(python(printed("thanks"), scopes=("reply:event",)))
    hooks.receive(push(1), push(2, **DM))
    assert hooks.run_all() == ["ok", "ok"]
    assert [
        (message.to, message.message, message.reply_to_id, message.mesh) for message in hooks.sent
    ] == [("#alerts", "thanks", "bm_1", "default"), (f"dm:{ALICE}", "thanks", "bm_2", "default")]
    (act,) = hooks.runs()[0].acts
    assert (act["scope"], act["outcome"]) == ("reply:event", "sent")
    assert act["client_message_id"] == hooks.sent[1].client_message_id
    assert "thanks" not in json.dumps(msgspec.to_builtins(hooks.runs()))


GRAB = "import os, sys; open(sys.argv[1], 'w').write(os.environ['AGENTLIP_HOOK_TOKEN'])"


def test_grant_is_limited_to_its_scopes_event_and_time(new_hooks, tmp_path):
    hooks = new_hooks(python(GRAB, tmp_path / "out", scopes=SCOPES))
    clock = hooks.inbox.clock
    hooks.receive(push(1))
    hooks.run_all()
    who = hooks.tokens.find((tmp_path / "out").read_text())
    assert who.scopes == {wire.ACT}
    assert who.until_ms - clock.now_ms() <= 300_000
    hooks.service.act(who, wire.Act("topic:alerts:post", "one", {"n": 1}))
    hooks.service.act(who, wire.Act(f"dm:send:{ALICE}", "two"))
    for scope in ("topic:builds:post", f"dm:send:{'b' * 64}", "inbox:read", "topic:*:post"):
        with pytest.raises(wire.NotGranted):
            hooks.service.act(who, wire.Act(scope, "no"))
    assert [(message.to, message.message, message.reply_to_id) for message in hooks.sent] == [
        ("#alerts", "one", None), (f"dm:{ALICE}", "two", None),
    ]  # fmt: skip
    assert len(hooks.runs()[0].acts) == 6
    late = msgspec.structs.replace(who, until_ms=clock.now_ms())
    with pytest.raises(wire.NotGranted):
        hooks.service.act(late, wire.Act("reply:event", "late"))
    with pytest.raises(wire.NotGranted):
        hooks.service.act(
            Principal("server", "s", frozenset({"admin"})), wire.Act("reply:event", "x")
        )


def test_act_limit_applies_to_each_run(new_hooks, tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.inbox.hooks.service.ACTS_MAX", 1)
    hooks = new_hooks(python(GRAB, tmp_path / "out", scopes=SCOPES))
    for number in (1, 2):
        hooks.receive(push(number))
        hooks.run_all()
        who = hooks.tokens.find((tmp_path / "out").read_text())
        hooks.service.act(who, wire.Act("reply:event", str(number)))
        with pytest.raises(wire.TooManyActs):
            hooks.service.act(who, wire.Act("reply:event", "more"))
    assert [message.message for message in hooks.sent] == ["1", "2"]


def test_log_has_no_message_content(new_hooks, tmp_path):
    hooks = new_hooks(python("raise SystemExit('a private word')"))
    hooks.receive(push(1, body="a private word"))
    hooks.run_all()
    assert "private" not in hooks.inbox.lines.getvalue().decode()
