"""Workers of the SDK with the defaults: nothing runs twice without a fault."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from appliance.sdk.courier import Consumer
from tests.support.commands import agentlip
from tests.support.courier import enqueue, locate, stats
from tests.support.network_link import NetworkLink
from tests.support.until import until

pytestmark = pytest.mark.slow


@contextmanager
def working(consumer, handler):
    """`consumer` runs in a thread while the block does."""
    thread = threading.Thread(target=consumer.run, args=(handler,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(30)
        consumer.close()
    assert not thread.is_alive()


def names(count, prefix="e"):
    return [f"{prefix}{number}" for number in range(count)]


def test_two_workers_run_each_job_once_however_short_the_lease(hub, stream):
    """The jobs of one worker take several leases. Each run and the streams' counts are compared."""
    ids, runs, job = names(40), [], threading.Event()

    def work(env):
        runs.append(env["id"])
        job.wait(0.08)

    with ExitStack() as stack:
        for _ in range(2):
            consumer = Consumer(locate(hub), stream, lease_ms=600)
            stack.enter_context(working(consumer, work))
        enqueue(hub, stream, *ids)
        until(lambda: stats(hub, stream)["acked"] == len(ids), 60, "all are acked")
    assert Counter(runs) == Counter(ids)
    assert stats(hub, stream)["redelivered"] == 0


def test_ack_arrives_while_the_next_handler_runs(hub, stream):
    release = threading.Event()

    def work(env):
        if env["id"] == "last":
            release.wait(30)

    enqueue(hub, stream, *names(30), "last")
    with working(Consumer(locate(hub), stream), work):
        until(lambda: stats(hub, stream)["acked"] == 30, 20, "all acks before the long job")
        release.set()


def test_late_worker_gets_its_share_while_the_first_one_is_busy(hub, stream):
    release, seen = threading.Event(), []

    def busy(env):
        if env["id"] == "long":
            release.wait(60)

    quick = [*names(300, "q"), "long"]
    enqueue(hub, stream, *quick, *names(50, "r"))  # quick ones first, so that much is prefetched
    with working(Consumer(locate(hub), stream), busy):
        until(lambda: stats(hub, stream)["acked"] == 300, 30, "the long job has begun")
        with working(Consumer(locate(hub), stream), lambda env: seen.append(env["id"])):
            until(lambda: len(seen) == 50, 30, "the late worker does the rest")
            release.set()
    assert sorted(seen) == sorted(names(50, "r"))


def test_loop_renews_until_the_ack(hub):
    stream, runs, long = "short/loop", [], threading.Event()
    enqueue(hub, stream, *names(2))
    with Consumer(locate(hub), stream) as consumer:
        for delivery in consumer:
            runs.append(delivery.id)
            long.wait(3.0 if delivery.id == "e0" else 0)
            delivery.ack()
            if len(runs) == 2:
                break
        until(lambda: stats(hub, stream)["acked"] == 2, 30, "both acks arrive")
    assert runs == names(2)


def test_job_whose_ack_was_lost_does_not_run_again(hub, stream):
    runs = []
    with NetworkLink(hub) as link:

        def work(env):
            runs.append(env["id"])
            link.held = env["id"] == "e0" and len(runs) == 1  # its ack does not arrive

        enqueue(hub, stream, *names(5))
        with working(Consumer(link.locate, stream), work):
            until(lambda: link.held and link.waiting_bytes, 20, "its ack is on the way")
            link.cut()
            link.held = False
            until(lambda: stats(hub, stream)["acked"] == 5, 30, "all are acked")
    assert sorted(runs) == names(5)


def test_handler_that_raises_waits_and_its_error_is_listed(hub, stream):
    calls = []

    def work(env):
        calls.append(env["id"])
        if env["id"] == "bad":
            raise ValueError("no such customer")

    enqueue(hub, stream, "bad", *names(20))
    with working(Consumer(locate(hub), stream), work):
        until(lambda: stats(hub, stream)["acked"] == 20, 20, "the others are done")
        until(lambda: calls.count("bad") == 2, 20, "it was tried again")
        until(lambda: stats(hub, stream)["delayed"] == 1, 20, "it waits")
    assert calls.count("bad") == 2
    details = hub.request("GET", f"/v1/envelope?stream={stream}&id=bad")
    assert [each["error"] for each in details["history"]] == 2 * ["ValueError: no such customer"]


def test_program_that_acks_in_groups_is_served(hub, stream):
    group, done = [], []
    enqueue(hub, stream, *names(60))
    with Consumer(locate(hub), stream) as consumer:
        for delivery in consumer:
            group.append(delivery)
            if len(group) == 20:
                for each in group:
                    each.ack()
                    done.append(each.id)
                group = []
            if len(done) == 60:
                break
        until(lambda: stats(hub, stream)["acked"] == 60, 20, "all acks arrive")
    assert done == names(60)


def test_command_that_exits_with_0_runs_once(hub, stream, tmp_path):
    enqueue(hub, stream, *names(8))
    script = f"echo $COURIER_ID >> {tmp_path}/runs; sleep 0.15"
    words = ("courier", "subscribe", stream, "--lease-ms", "500", "--exit-when-idle", "1")
    done = agentlip(*words, "--", "sh", "-c", script, cwd=hub.workspace)
    assert done.code == 0, done.err
    assert sorted((tmp_path / "runs").read_text().split()) == names(8)
    assert stats(hub, stream)["redelivered"] == 0


def test_command_leases_one_envelope_at_a_time(hub, stream, tmp_path):
    enqueue(hub, stream, *names(3))
    script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    words = ("courier", "subscribe", stream, "--exit-after", "3", "--", "sh", "-c", script)
    with ThreadPoolExecutor(1) as threads:
        command = threads.submit(agentlip, *words, cwd=hub.workspace)
        until((tmp_path / "begun").exists, 20, "the command runs")
        figures = stats(hub, stream)
        (tmp_path / "go").touch()
        assert command.result(60).code == 0
    assert (figures["inflight"], figures["ready"]) == (1, 2)
