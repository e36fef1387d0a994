"""Hooks: who is called, with what, for how long, and what they may send."""

import json
import os
import sys

import gevent
import msgspec
import pytest

from appliance.hooks import matching, wire
from appliance.hooks.loops import Runner
from appliance.hooks.service import Hooks, reply_in
from appliance.hooks.settings import HookCommand, HookSettings
from appliance.inbox.event import of_fact, of_message
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.config import BadSettings
from appliance.kernel.errors import Unavailable
from tests.support.inbox import ALICE, OWN, House, push
from tests.support.until import until

ECHO = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


class Stage:
    """Hooks over a real inbox. `sent` are the orders that hooks had carried out."""

    def __init__(self, tmp_path, *commands, off_in_ci=False, environment=None, **settings):
        self.house = House(tmp_path / "ws")
        self.out = tmp_path / "out"
        self.book = TokenBook()
        self.sent = []
        self.hooks = Hooks(
            HookSettings(commands=commands, **settings),
            self.house.store,
            self.book,
            self.house.clock,
            self.house.log,
            tmp_path,
            environment or dict(os.environ),
            off_in_ci=off_in_ci,
            own=lambda _mesh: [OWN.public_hex, "us"],
            url=lambda: "http://127.0.0.1:1",
            announce=self.house.inbox.announce,
        )
        self.hooks.send = self.sent.append
        self.house.inbox.listeners.append(self.hooks.hear)

    def receive(self, *pushes):
        for one in pushes:
            self.house.inbox.receive(one)

    def work(self):
        """All that waits, one after the other; the outcomes."""
        outcomes = []
        while (job := self.hooks.take()) is not None:
            outcomes.append(self.hooks.work(job))
        return outcomes

    def read(self):
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def runs(self, mesh="default"):
        return self.hooks.runs(mesh, None, 100).runs


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(*commands, **more):
        stages.append(Stage(tmp_path, *commands, **more))
        return stages[-1]

    yield make
    for one in stages:
        one.house.close()


def python(code, *arguments, on="on-message", **more):
    return HookCommand(on=on, run=(sys.executable, "-c", code, *map(str, arguments)), **more)


def echo(tmp_path, **more):
    return python(ECHO, tmp_path / "out", **more)


# -- who is called -------------------------------------------------------------------------

DM = {"topic": None, "destination_kind": "dm", "destination_ref": OWN.public_hex}


def event(**changed):
    from appliance.inbox.wire import InboxMessage

    values = msgspec.to_builtins(push(1, **changed))
    values["broker_message_id"] = values.pop("message_id")
    return of_message(InboxMessage(number=1, id="in_1", received_at="", own=False, **values))


@pytest.mark.parametrize(
    ("heard", "names"),
    [
        (event(), ["on-message", "on-topic-alerts"]),
        (event(**DM), ["on-message", "on-dm"]),
        (
            event(meta={"mentions": [OWN.public_hex]}),
            ["on-message", "on-mention", "on-topic-alerts"],
        ),
        (event(meta={"mentions": ["us", 5]}), ["on-message", "on-mention", "on-topic-alerts"]),
        (event(meta={"mentions": "us"}), ["on-message", "on-topic-alerts"]),
        (event(meta={"mentions": ["them"]}), ["on-message", "on-topic-alerts"]),
        (of_fact("daemon_disconnect", "default", 1), ["on-disconnect"]),
        (of_fact("daemon_reconnect", "default", 1), ["on-reconnect"]),
        (of_fact("peer_join", "default", 1), []),
        (of_fact("hook_executed", "default", 1), []),
    ],
)
def test_the_names_of_an_event(heard, names):
    assert matching.names_of(heard, [OWN.public_hex, "us"]) == names


@pytest.mark.parametrize(
    ("on", "scopes", "fits"),
    [
        ("on-message", (), True),
        ("on-topic-alerts", ("topic:alerts:post",), True),
        ("on-dm", ("reply:event", "dm:send:sender"), True),
        ("on-topic-", (), False),
        ("on-weather", (), False),
        ("on-file-share", (), False),
        ("pre-send", (), False),
        ("on-message", ("topic:*:post",), False),
        ("on-message", ("topic:a*:post",), False),
        ("on-message", ("inbox:read",), False),
        ("on-message", ("dm:send:*",), False),
        ("on-message", ("admin",), False),
    ],
)
def test_what_may_be_declared(on, scopes, fits):
    assert (matching.problem(HookCommand(on=on, run=("true",), scopes=scopes)) is None) == fits


def test_a_declaration_that_is_wrong_stops_the_start(stage):
    with pytest.raises(BadSettings, match="on-weather"):
        stage(HookCommand(on="on-weather", run=("true",)))


SCOPES = ("reply:event", "dm:send:sender", "topic:alerts:post", "topic:builds:post")


def test_scopes_are_bound_to_the_event():
    command = HookCommand(on="on-message", run=("true",), scopes=SCOPES)
    assert matching.granted(command, event().message) == (
        "reply:event", f"dm:send:{ALICE}", "topic:alerts:post",
    )  # fmt: skip
    assert matching.granted(command, event(**DM).message) == ("reply:event", f"dm:send:{ALICE}")
    assert matching.granted(command, None) == ()


def test_a_hook_is_called_once_for_a_message_that_comes_twice(stage, tmp_path):
    played = stage(echo(tmp_path))
    played.receive(push(1), push(1))
    assert played.work() == ["ok"]
    (told,) = played.read()
    assert told["hook"] == "on-message"
    assert told["data"]["body"] == "message 1"
    (run,) = played.runs()
    assert (run.outcome, run.exit_code, run.inbox_id) == ("ok", 0, told["data"]["id"])
    assert played.house.heard[-1].name == "hook_executed"
    assert played.work() == []


def test_hooks_of_another_mesh_and_of_our_own_messages_are_not_called(stage, tmp_path):
    played = stage(echo(tmp_path, mesh="lab"))
    played.receive(push(1), push(2, mesh="lab", sender_pubkey=OWN.public_hex), push(3, mesh="lab"))
    played.work()
    assert [told["data"]["body"] for told in played.read()] == ["message 3"]
    assert played.runs() == []
    assert len(played.runs("lab")) == 1


def test_hooks_are_off_in_ci_unless_wanted(stage, tmp_path):
    assert not stage(echo(tmp_path), off_in_ci=True).hooks.enabled


def test_hooks_in_ci_can_be_switched_on_and_elsewhere_off(stage, tmp_path):
    assert stage(echo(tmp_path), off_in_ci=True, enabled="on").hooks.enabled


def test_hooks_can_be_switched_off(stage, tmp_path):
    played = stage(echo(tmp_path), enabled="off")
    played.receive(push(1))
    assert played.hooks.take() is None


def test_a_start_is_an_event_of_each_mesh(stage, tmp_path):
    played = stage(echo(tmp_path, on="on-startup"))
    played.hooks.start_up("default")
    assert played.work() == ["ok"]
    assert played.read()[0]["data"] == {"mesh": "default"}


# -- with what, and for how long -------------------------------------------------------------


def test_a_hook_knows_no_secret_of_the_workspace(stage, tmp_path):
    code = "import os, sys; open(sys.argv[1], 'w').write(repr(dict(os.environ)))"
    environment = {"PATH": os.environ["PATH"], "AGENTLIP_TOKEN": "s3cret", "AWS_SECRET": "s3cret"}
    played = stage(python(code, tmp_path / "out"), environment=environment)
    played.receive(push(1))
    played.work()
    text = (tmp_path / "out").read_text()
    assert "s3cret" not in text
    assert "AGENTLIP_HOOK_TOKEN" not in text  # nothing was granted
    assert "AGENTLIP_RUN" in text


def test_a_large_event_is_cut_and_says_so(stage, tmp_path):
    played = stage(echo(tmp_path), event_bytes_max=8192)
    played.receive(push(1, body="\x01" * 60_000, meta={"a": "b" * 9000}), push(2))
    played.work()
    first, second = played.read()
    assert first["_truncated"] is True
    assert 0 < len(first["data"]["body"]) < 60_000
    assert "_truncated" not in second
    assert all(len(line) <= 8192 for line in played.out.read_text().splitlines())
    assert [run.truncated for run in played.runs()] == [False, True]


@pytest.mark.parametrize(
    ("code", "outcome", "exit_code"),
    [
        ("pass", "ok", 0),
        ("raise SystemExit(7)", "failed", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "failed", -9),
        ("import time; time.sleep(60)", "timeout", -15),
        ("import signal, time; signal.signal(15, signal.SIG_IGN)\nwhile 1: time.sleep(1)",
         "timeout", -9),
    ],
)  # fmt: skip
def test_every_end_has_its_outcome(stage, code, outcome, exit_code):
    played = stage(python(code), seconds_max=0.6, kill_after_seconds=0.3)
    played.receive(push(1))
    assert played.work() == [outcome]
    assert (played.runs()[0].exit_code, played.runs()[0].outcome) == (exit_code, outcome)


def test_a_command_that_is_not_there_is_told(stage):
    played = stage(HookCommand(on="on-message", run=("/nowhere/at/all",)))
    played.receive(push(1))
    assert played.work() == ["not_started"]


def test_what_a_hook_started_ends_with_it(stage, tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(60)"
    )
    played = stage(python(code, tmp_path / "out"), seconds_max=1.0, kill_after_seconds=0.3)
    played.receive(push(1))
    assert played.work() == ["timeout"]
    pid = int((tmp_path / "out").read_text())
    until(lambda: _is_over(pid), 5, "the child's child is gone")


def _is_over(pid):
    try:
        return "Z" in open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True


def test_the_loop_goes_on_while_a_hook_runs(stage):
    played = stage(python("import time; time.sleep(0.5)"))
    played.receive(push(1))
    ticks = []

    def tick():
        while True:
            ticks.append(1)
            gevent.sleep(0.01)

    ticking = gevent.spawn(tick)
    assert played.work() == ["ok"]
    ticking.kill()
    assert len(ticks) > 20


def test_eight_run_at_once_and_no_more(stage, tmp_path):
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    played = stage(python(code), queue_max=10)
    runners = [Runner(played.hooks, played.house.clock, played.house.log) for _ in range(8)]

    def count(outcome):
        return sum(run.outcome == outcome for run in played.runs())

    for runner in runners:
        runner.start()
    try:
        played.receive(*(push(n) for n in range(10)))
        with gevent.Timeout(20):
            while count("running") < 8:
                gevent.sleep(0.02)
        gevent.sleep(0.1)
        assert count("running") == 8
        gate.touch()
        with gevent.Timeout(20):
            while count("ok") < 10:
                gevent.sleep(0.02)
    finally:
        gate.touch()
        for runner in runners:
            runner.stop()


def test_a_full_queue_drops_and_counts(stage):
    played = stage(python("pass"), queue_max=2)
    played.receive(*(push(n) for n in range(5)))
    assert played.work() == ["ok", "ok"]
    assert len(played.house.said("a run of a hook was dropped: too many wait")) == 3


def test_what_a_crash_cut_off_is_told_as_lost(stage):
    played = stage(python("pass"))
    played.receive(push(1))
    job = played.hooks.take()
    from appliance.hooks import writes

    played.house.store.write(writes.begin, job.id, "on-message", "message", "default", None, False)
    played.hooks.forget_running()
    assert played.runs()[0].outcome == "lost"


def test_hooks_that_answer_each_other_come_to_an_end(stage):
    played = stage(python(said("again"), scopes=("reply:event",)), hops_max=3)
    meta, rounds = None, 0
    while True:
        rounds += 1
        played.receive(push(rounds, meta=meta))
        if not played.work():
            break
        meta = played.sent[-1].meta
    assert (rounds, meta) == (4, {"agentlip_hops": 3})
    assert played.house.said("a message came from too many hooks; none is called")


@pytest.mark.parametrize("meta", [{"agentlip_hops": "9"}, {"agentlip_hops": True}, {}, None])
def test_other_counts_of_hops_are_none(meta):
    assert matching.hops(meta) == 0


# -- what it may send ------------------------------------------------------------------------


def said(reply):
    return f"print({json.dumps({'reply': reply})!r})"


def test_a_reply_goes_where_the_message_came_from(stage):
    played = stage(python(said("thanks"), scopes=("reply:event",)))
    played.receive(push(1), push(2, **DM))
    assert played.work() == ["ok", "ok"]
    assert [(one.to, one.message, one.reply_to_id, one.mesh) for one in played.sent] == [
        ("#alerts", "thanks", "bm_1", "default"),
        (f"dm:{ALICE}", "thanks", "bm_2", "default"),
    ]
    (act,) = played.runs()[0].acts
    assert (act["scope"], act["outcome"]) == ("reply:event", "sent")
    assert act["client_message_id"] == played.sent[1].client_message_id
    assert "thanks" not in json.dumps(msgspec.to_builtins(played.runs()))


def test_a_reply_without_the_scope_is_refused_and_noted(stage):
    played = stage(python(said("thanks")))
    played.receive(push(1))
    assert played.work() == ["ok"]
    assert played.sent == []
    assert played.runs()[0].acts[0]["outcome"] == "refused"


def test_a_reply_that_the_outbox_refuses_is_noted(stage):
    played = stage(python(said("thanks"), scopes=("reply:event",)))

    def refuse(_order):
        raise Unavailable

    played.hooks.send = refuse
    played.receive(push(1))
    assert played.work() == ["ok"]
    assert played.runs()[0].acts[0]["outcome"] == "failed"


@pytest.mark.parametrize("text", [b"", b"hello", b"[]", b'{"reply": 5}', b'{"reply": ""}', b"{}"])
def test_other_output_is_no_reply(text):
    assert reply_in(text) is None


def test_output_beyond_its_limit_is_not_read(stage):
    played = stage(python(said("x" * 5000), scopes=("reply:event",)), said_bytes_max=1000)
    played.receive(push(1))
    assert played.work() == ["ok"]
    assert (played.sent, played.runs()[0].said_bytes) == ([], 1000)


GRAB = "import os, sys; open(sys.argv[1], 'w').write(os.environ['AGENTLIP_HOOK_TOKEN'])"


def test_a_grant_opens_what_it_says_for_one_event_and_five_minutes(stage, tmp_path):
    played = stage(python(GRAB, tmp_path / "out", scopes=SCOPES))
    clock = played.house.clock
    played.receive(push(1))
    played.work()
    who = played.book.find((tmp_path / "out").read_text())
    assert who.scopes == {wire.ACT}
    assert who.until_ms - clock.now_ms() <= 300_000
    played.hooks.act(who, wire.Act("topic:alerts:post", "one", {"n": 1}))
    played.hooks.act(who, wire.Act(f"dm:send:{ALICE}", "two"))
    for scope in ("topic:builds:post", f"dm:send:{'b' * 64}", "inbox:read", "topic:*:post"):
        with pytest.raises(wire.NotGranted):
            played.hooks.act(who, wire.Act(scope, "no"))
    assert [(one.to, one.message, one.reply_to_id) for one in played.sent] == [
        ("#alerts", "one", None), (f"dm:{ALICE}", "two", None),
    ]  # fmt: skip
    assert len(played.runs()[0].acts) == 6
    assert played.hooks.forget_grants(who.until_ms) == 1
    with pytest.raises(wire.NotGranted):
        played.hooks.act(who, wire.Act("reply:event", "late"))
    with pytest.raises(wire.NotGranted):
        played.hooks.act(
            Principal("server", "s", frozenset({"admin"})), wire.Act("reply:event", "x")
        )


def test_each_run_has_its_own_number_of_acts(stage, tmp_path):
    played = stage(python(GRAB, tmp_path / "out", scopes=SCOPES), acts_max=1)
    for number in (1, 2):
        played.receive(push(number))
        played.work()
        who = played.book.find((tmp_path / "out").read_text())
        played.hooks.act(who, wire.Act("reply:event", str(number)))
        with pytest.raises(wire.TooManyActs):
            played.hooks.act(who, wire.Act("reply:event", "more"))
    assert [one.message for one in played.sent] == ["1", "2"]


def test_lent_credentials_end_and_have_a_limit():
    book = TokenBook()
    for number in range(5):
        book.lend(f"t{number}", Principal(f"r{number}", "hook", frozenset(), until_ms=1000), 3)
    assert [book.find(f"t{number}") is not None for number in range(5)] == [False] * 2 + [True] * 3
    book.replace([])
    assert book.find("t4").id == "r4"
    book.end(1000)
    assert book.find("t4") is None


def test_without_an_outbox_nothing_is_sent(stage, tmp_path):
    played = stage(python(GRAB, tmp_path / "out", scopes=SCOPES))
    played.hooks.send = None
    played.receive(push(1))
    played.work()
    who = played.book.find((tmp_path / "out").read_text())
    with pytest.raises(wire.NoSender):
        played.hooks.act(who, wire.Act("reply:event", "x"))


def test_no_log_line_holds_what_was_said(stage, tmp_path):
    played = stage(python("raise SystemExit('a private word')"))
    played.receive(push(1, body="a private word"))
    played.work()
    assert "private" not in played.house.lines.getvalue().decode()


def test_the_list_of_runs_is_limited_in_bytes(stage):
    stage = stage()
    acts = json.dumps([{"scope": "x" * 200, "outcome": "sent"}] * 50)

    def fill(tx):
        for number in range(200):
            tx.execute(
                "INSERT INTO hook_runs (id, at, hook, event, mesh, outcome, duration_ms,"
                " truncated, said_bytes, acts)"
                " VALUES (?, 1, 'h', 'e', 'default', 'ok', 1, 0, 0, ?)",
                (str(number), acts),
            )

    stage.house.store.write(fill)
    seen, before = [], None
    while True:
        page = stage.hooks.runs("default", before, 1000)
        assert len(msgspec.json.encode(page)) <= 1 << 20
        seen += [int(run.id) for run in page.runs]
        if not page.has_more:
            break
        before = page.runs[-1].number
    assert before is not None
    assert seen == list(range(199, -1, -1))
