"""Rounds of the loop with a fake clock: schedules, missed times, restarts, a full disk."""

import io

import pytest
from gevent.event import Event

from appliance.jobs.attempts import Attempts, AttemptSite
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.executor import AttemptEnd
from appliance.jobs.loops import AttemptLoop, JobAsker, JobEvent, TriggerLoop
from appliance.jobs.service import Jobs
from appliance.jobs.signals import JobSignals
from appliance.jobs.states import CANCELLED, FAILED, LOST, SUCCEEDED
from appliance.jobs.wire import JobHistoryQuery
from appliance.kernel.auth import OWNER, TokenBook
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace.schema import migrate
from tests.support.clock import FakeClock

HOUR = 3600.0


class FakeExecution:
    survives = True  # nothing waits for it at the end of a test

    def __init__(self, order, ended):
        self._ended = ended
        self.order, self.handle, self.limits = order, "none", "none"
        self._over, self._end, self.watched = Event(), AttemptEnd(LOST), Event()

    def end(self, state=SUCCEEDED):
        self._end = AttemptEnd(state, 0 if state == SUCCEEDED else 1)
        self._ended.clear()
        self._over.set()
        assert self._ended.wait(10)

    def wait(self):
        self.watched.set()
        self._over.wait(20)
        return self._end

    def cancel(self):
        self.end(CANCELLED)

    def kill(self):
        self._over.set()

    def remove(self):
        pass


class Bench:
    """Jobs on a file; `restart` is a kill and a new process."""

    def __init__(self, folder):
        self.folder, self.clock, self.log = folder, FakeClock(), Log(io.BytesIO())
        (folder / "jobs").mkdir()
        migrate(folder / "store", "jobs", clock=self.clock, log=self.log)
        self.number = 0
        self.find, self.attempts_max = lambda: None, 8
        self.restart()

    def restart(self):
        self.number += 1
        store = Store("jobs", self.folder / "store", StoreSettings(), self.clock, self.log)
        self.executions, self.book = [], TokenBook()
        steady, kept = SteadyClock(store, self.clock, self.log), self.folder / "kept"
        catalogue, self.signals = JobCatalogue(self.folder, self.log), JobSignals()
        self.jobs = Jobs(store, catalogue, steady, self.signals, self.clock, kept)
        self.attempts = Attempts(self.jobs, self.book, self.log, AttemptSite(
            workspace=self.folder, kept=kept, instance_id=f"i{self.number}",
            url=lambda: "http://x", start=self.start, find=lambda _: self.find(),
            attempts_max=self.attempts_max,
        ))  # fmt: skip
        self.jobs.open()
        self.loop = AttemptLoop(self.jobs, self.attempts, self.clock, self.log)

    def start(self, order):
        execution = FakeExecution(order, self.signals.work)
        self.executions.append(execution)
        return execution

    def job(self, name="a", text="", **fields):
        lines = [f"{key} = {value!r}".replace("'", '"') for key, value in fields.items()]
        text = "\n".join(['command = ["x"]', *lines, text])
        (self.folder / "jobs" / f"{name}.toml").write_text(text)

    def round(self, seconds=0.0):
        self.clock.pass_seconds(seconds)
        self.signals.work.clear()
        before = len(self.executions)
        counts = self.loop.run_once(self.clock.now_ms())
        for execution in self.executions[before:]:
            execution.watched.wait(10)
        return counts

    def states(self, job="a"):
        query = JobHistoryQuery()
        return [run.state for run in self.jobs.history(job, query).runs]


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.attempts.close(1)
    made.jobs.store.close(5)


def test_cron_starts_one_run_for_each_time(bench):
    bench.clock.ms = 1_770_001_200_000  # 03:00 UTC
    bench.job(cron="0 * * * *")
    assert bench.round()["created"] == 0
    assert bench.loop.interval_seconds == 30.0
    assert bench.round(HOUR)["started"] == 1
    bench.executions[0].end()
    bench.round()
    assert bench.round()["created"] == 0
    assert bench.round(HOUR)["created"] == 1
    assert bench.states() == ["running", "succeeded"]


@pytest.mark.parametrize(("catch_up", "created"), [("once", 1), ("skip", 0)])
def test_long_sleep_or_stop_starts_at_most_one_run(bench, catch_up, created):
    bench.clock.ms = 1_770_001_200_000
    bench.job(cron="0 * * * *", catch_up=catch_up)
    bench.job("b", interval_seconds=60)
    bench.round()
    bench.clock.pass_seconds(500.5 * HOUR)
    bench.jobs.store.close(5)
    bench.restart()
    assert bench.round()["created"] == created + 1
    assert len(bench.states()) == created
    assert bench.round()["created"] == 0


@pytest.mark.parametrize("jump_hours", [-1, 5, -5, 10_000, -10_000])
def test_clock_that_is_set_causes_no_storm(bench, jump_hours):
    bench.clock.ms = 1_770_001_200_000
    bench.job(cron="*/10 * * * *")
    bench.job("b", interval_seconds=600)
    bench.round()
    bench.round(601)
    for execution in list(bench.executions):
        execution.end()
    bench.round()
    bench.clock.ms += int(jump_hours * HOUR * 1000)
    counts = [bench.round() for _ in range(5)]
    assert sum(count["created"] for count in counts) == (1 if jump_hours > 0 else 0)
    assert len(bench.states("b")) == 1, "intervals follow the steady clock"


def test_run_of_an_ended_process_is_lost_and_repeated(bench):
    bench.job(retries=1)
    run_id = bench.jobs.request("a", OWNER)[0].run.id
    bench.round()
    bench.restart()
    assert bench.round()["lost"] == 1
    bench.round(13)
    bench.executions[0].end()
    bench.round()
    run = bench.jobs.show(run_id).run
    assert run.state == SUCCEEDED
    assert [attempt.state for attempt in run.attempts] == [LOST, SUCCEEDED]


def test_container_of_an_ended_process_is_adopted_with_its_token(bench):
    bench.job(image="x", scopes=["jobs:read"], retries=1)
    run_id = bench.jobs.request("a", OWNER)[0].run.id
    bench.round()
    environment = bench.executions[0].order.environment

    bench.restart()
    bench.find = (bench.folder / "no-socket").stat
    assert bench.round()["lost"] == 0
    bench.find = lambda: environment
    bench.round()
    bench.executions[0].watched.wait(10)
    assert bench.executions[0].order.is_adopted
    assert bench.book.find(environment["AGENTLIP_TOKEN"]).id == run_id
    bench.executions[0].end()
    bench.round()
    run = bench.jobs.show(run_id).run
    assert (run.state, run.attempts_made) == (SUCCEEDED, 1)
    assert bench.book.find(environment["AGENTLIP_TOKEN"]) is None


def test_end_is_stored_once_the_disk_has_space(bench, monkeypatch):
    bench.job()
    bench.jobs.request("a", OWNER)
    bench.round()
    store = bench.jobs.store

    def refuse(_calls):
        raise Unavailable

    monkeypatch.setattr(store, "write_many", refuse)
    bench.executions[0].end()
    assert bench.round() == {"refused": 1}
    monkeypatch.undo()
    bench.round()
    assert bench.states() == [SUCCEEDED]


def test_job_runs_when_all_before_it_have_succeeded(bench):
    for name in ("a", "b"):
        bench.job(name)
    bench.job("c", after=["a", "b"])
    for name, end in (("a", SUCCEEDED), ("b", FAILED), ("b", SUCCEEDED)):
        assert bench.states("c") == []
        bench.jobs.request(name, OWNER)
        bench.round()
        bench.executions[-1].end(end)
        bench.signals.asks.clear()
        bench.round()
        assert bench.signals.asks.wait(0), "the job that follows may ask"
    assert bench.states("c") == ["running"]
    run = bench.jobs.history("c", JobHistoryQuery()).runs[0]
    assert (run.cause, run.detail.startswith("run_")) == ("after", True)


class FakeEvents:
    source = key = "hub"

    def __init__(self):
        self.events = []

    def newest(self):
        return len(self.events)

    def after(self, number, limit):
        return self.events[number : number + limit]

    def listen(self, wake):
        self.wake = wake

    def add(self, name, where=None):
        self.events.append(JobEvent(len(self.events) + 1, name, where))


def test_events_start_one_run_at_once_and_one_later(bench):
    source = FakeEvents()
    source.add("message.created", "before the job")
    trigger = '[[on]]\nsource = "hub"\nevent = "message.*"\nwhere = "ops"\ndebounce_seconds = 5'
    bench.job(text=trigger, overlap="queue")
    bench.round()

    def loop():
        return TriggerLoop(bench.jobs, [source], bench.clock, bench.log)

    assert loop().run_once(0) == {"created": 0}
    for name, where in (("topic.created", "ops"), ("message.created", "general")):
        source.add(name, where)
        assert loop().run_once(0) == {"created": 0}
    for created in (1, 0, 0):
        source.add("message.created", "ops")
        bench.signals.asks.clear()
        assert loop().run_once(0) == {"created": created}
        assert bench.signals.asks.wait(0) == bool(created)
        bench.round()
        if created:
            bench.executions[0].end()
            bench.round()
            source.add("message.edited", "ops")
            assert loop().run_once(0) == {"created": 1}
    assert bench.states() == ["queued", "succeeded"]
    assert loop().run_once(0) == {"created": 0}, "the position is stored"
    assert bench.round(5)["started"] == 1


def test_events_wake_the_triggers_only_for_a_job_that_wants_them(bench):
    source, work = FakeEvents(), bench.signals.triggers
    loop = TriggerLoop(bench.jobs, [source], bench.clock, bench.log)

    def wakes():
        work.clear()
        source.wake()
        return work.is_set()

    def wakes_after_round():
        loop.run_once(0)
        return wakes()

    assert (wakes(), wakes_after_round()) == (True, False)
    bench.job(text='[[on]]\nsource = "hub"\nevent = "message.*"')
    bench.jobs.catalogue.refresh()
    assert (wakes(), wakes_after_round()) == (True, True)


def test_waiting_run_names_what_it_waits_for(bench):
    bench.job("a", overlap="queue")
    bench.job("b")
    bench.job("asking", '[ask]\ntext = "Go?"')

    def waits_for(run_id):
        return bench.jobs.show(run_id).run.waits_for

    jobs = bench.jobs
    first, second, other, asking = (
        jobs.request(job, OWNER)[0].run.id for job in ("a", "a", "b", "asking")
    )
    assert waits_for(first) == "one of jobs.attempts_max attempts"
    assert waits_for(asking) == "the answer to a question: agentlip ask list"
    jobs.pause("b", is_paused=True)
    assert waits_for(other) == "agentlip jobs resume b"
    bench.round()
    assert (waits_for(first), waits_for(second)) == (None, f"the end of {first}")
    jobs.pause("all", is_paused=True)
    assert waits_for(second) == "agentlip jobs resume --all"


class FakeAsks:
    given = None

    def ask(self, run_id, job, ask):
        return "ask_1"

    def answer(self, ask_id):
        return self.given

    def listen(self, wake):
        self.wake = wake


def test_answer_starts_the_run_at_once(bench):
    bench.job(text='[ask]\ntext = "Go?"')
    bench.jobs.request("a", OWNER)
    asks, work = FakeAsks(), bench.signals.asks
    asker = JobAsker(bench.jobs, asks, bench.clock, bench.log)
    for _ in range(2):
        assert asker.run_once(0) == {"settled": 0}
    work.clear()
    asks.given = "yes"
    asks.wake()
    assert work.is_set()
    assert asker.run_once(0) == {"settled": 1}
    bench.round()
    assert bench.states() == ["running"]


def test_run_that_is_repeated_names_the_seconds_until_then(bench):
    bench.job(text="retries = 1\n[backoff]\ninitial_seconds = 20.0\njitter = 0.0")
    run_id = bench.jobs.request("a", OWNER)[0].run.id
    bench.round()
    bench.executions[0].end(FAILED)
    bench.round()
    assert bench.jobs.show(run_id).run.waits_for == "another 20 seconds"
    bench.clock.pass_seconds(19.5)
    assert bench.jobs.show(run_id).run.waits_for == "another 1 seconds"


def test_no_more_attempts_run_than_are_set(bench):
    bench.attempts_max = 2
    bench.restart()
    for job in "abc":
        bench.job(job)
        bench.jobs.request(job, OWNER)
    assert bench.round()["started"] == 2
    assert bench.states("c") == ["queued"]
    bench.executions[0].end()
    assert sum(bench.round()["started"] for _ in range(2)) == 1
