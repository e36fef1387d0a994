"""The delivery job against the same numbers computed in plain Python."""

import random
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.shared import histogram
from spark.errors import EmptyRange, SegmentTorn
from spark.jobs.delivery import job, plan, schema
from spark.jobs.delivery import transforms as t
from spark.verification import QUARANTINE
from tests.spark.delivery_log import DeliveryLog, write_segment
from tests.spark.log import shipped
from tests.spark.test_ingest_segments import segment_of, sign

MORNING = datetime(2026, 2, 1, 8, tzinfo=UTC)
OBJECTIVE = {"objective": plan.OBJECTIVES}
STEPS = 2


def at(seconds):
    return MORNING + timedelta(seconds=seconds)


@pytest.fixture
def publish(make_request, spark, tmp_path):
    """Runs the job; the report, and the tables as lists of dicts."""

    def run(**more):
        report = job.run(make_request(options=OBJECTIVE, **more))
        return report, tables(make_request, spark)

    return run


def tables(make_request, spark):
    current = plan.gold(make_request().out).current()
    return {
        name: [row.asDict() for row in current.read(spark, name).collect()]
        for name in schema.OUTPUT
    }


# -- the same numbers in plain Python -----------------------------------------------------


def stages_of(logs):
    """(day, log, destination, stage, seconds, weight) for each stage that ended."""
    for row in logs.get("outbox", ()):
        if row["name"] == "attempt.delivered":
            yield stage(row["ts"], "outbox", row["route"], "accept_to_deliver", row["accepted_at"])
    sent = {}
    for row in sorted(logs.get("broker", ()), key=lambda row: (row["ts"], row["event_id"])):
        where = f"{row['destination_kind']}:{row['destination_ref']}"
        pair = (row["message_id"], row.get("recipient"))
        if row["name"] == "delivery.sent":
            if row["attempt"] == 1:
                yield stage(row["ts"], "broker", where, "accept_to_deliver", row["accepted_at"])
            sent[pair] = row["ts"]
        if row["name"] == "delivery.acked":
            yield stage(row["ts"], "broker", where, "accept_to_ack", row["accepted_at"])
            if pair in sent and is_near(sent[pair], row["ts"]):
                yield stage(row["ts"], "broker", where, "deliver_to_ack", sent[pair])
    begun = set()
    for row in logs.get("courier", ()):
        facts = ("courier", row["stream"])
        weight = 1 / row["sample_rate"]
        begin = row.get("delivered_at")
        key = (row["stream"], row["message_id"], row["attempt"], begin)
        if begin is not None and key not in begun:
            begun.add(key)
            if row["attempt"] == 1 and is_near(begin, row["ts"]):
                yield stage(begin, *facts, "accept_to_deliver", row["accepted_at"], weight)
        if row["name"] == "envelope.acked":
            yield stage(row["ts"], *facts, "accept_to_ack", row["accepted_at"], weight)
            if begin is not None:
                yield stage(row["ts"], *facts, "deliver_to_ack", begin, weight)
    for row in logs.get("runs", ()):
        facts, begin = ("runs", row["job"]), row["delivered_at"]
        if row["attempt"] == 1 and is_near(begin, row["ts"]):
            yield stage(begin, *facts, "accept_to_deliver", row["accepted_at"])
        if row["name"] == "attempt.succeeded":
            yield stage(row["ts"], *facts, "deliver_to_ack", begin)
            yield stage(row["ts"], *facts, "accept_to_ack", row["accepted_at"])


def is_near(began, ended):
    return (ended.date() - began.date()).days <= plan.PAIR_DAYS


def stage(ended, log, destination, name, began, weight=1.0):
    seconds = max(0.0, (ended - began) / timedelta(seconds=1))
    return ended.date(), log, destination, name, seconds, weight


def latency_of(logs):
    groups = defaultdict(list)
    for *key, seconds, weight in stages_of(logs):
        groups[tuple(key)].append((seconds, weight))
    return {key: sorted(values) for key, values in groups.items()}


def nearest(values, percent):
    total, reached = sum(weight for _, weight in values), 0.0
    for seconds, weight in values:
        reached += weight
        if reached * 100 >= total * percent * (1 - 1e-12):
            return seconds
    raise AssertionError("no values")


def assert_latency(rows, logs):
    expected = latency_of(logs)
    found_keys = {(row["day"], row["log"], row["destination"], row["stage"]) for row in rows}
    assert found_keys == set(expected)
    for row in rows:
        values = expected[row["day"], row["log"], row["destination"], row["stage"]]
        objective = plan.OBJECTIVES[row["stage"]]
        assert row["count"] == round(sum(weight for _, weight in values))
        assert row["within_objective"] == round(sum(w for s, w in values if s <= objective))
        assert row["objective_seconds"] == objective
        assert sum(row["buckets"].values()) == row["count"]
        for percent in (50, 95, 99):
            exact = nearest(values, percent)
            assert row[f"p{percent}_seconds"] == pytest.approx(exact, abs=2e-6)
            estimated = histogram.quantile(row["buckets"], percent / 100)
            assert estimated == pytest.approx(exact, rel=0.0101, abs=0.00101)


def random_logs(rnd, messages=150, days=3):
    """What the three stores would record of random sends over some days."""
    logs = {kind: DeliveryLog(kind) for kind in plan.LOGS}
    rows = []
    for number in range(messages):
        accepted = at(rnd.uniform(0, days * 86_400))
        rows += [("outbox", *each) for each in outbox_story(rnd, f"o{number}", accepted)]
        rows += [("broker", *each) for each in broker_story(rnd, f"b{number}", accepted)]
        rows += [("courier", *each) for each in courier_story(rnd, f"e{number}", accepted)]
        rows += [("runs", *each) for each in run_story(rnd, f"r{number}", accepted)]
    for kind, ts, name, message, fields in sorted(rows, key=lambda row: row[1]):
        logs[kind].add(ts, name, message, **fields)
    return logs


def outbox_story(rnd, message, accepted):
    fields = {"accepted_at": accepted, "route": rnd.choice(["broker m", "hooks.example.com"])}
    yield accepted, "send.accepted", message, fields
    now = accepted
    for attempt in range(1, rnd.choice([2, 2, 2, 3, 5])):
        now += timedelta(seconds=rnd.expovariate(0.2))
        failed = rnd.random() < 0.3
        name = "attempt.failed" if failed else "attempt.delivered"
        error = f"HTTP 503 after {attempt} s" if failed else None
        yield now, name, message, {**fields, "attempt": attempt, "error": error}
        if not failed:
            return
    yield now, "send.dead", message, {**fields, "error": f"no route to {message}x0123456789abcdef"}


def broker_story(rnd, message, accepted):
    fields = {"accepted_at": accepted, "destination_ref": rnd.choice(["builds", "tests"])}
    yield accepted, "message.accepted", message, fields
    for recipient in rnd.sample(["ann", "bob", "queue:q"], rnd.randint(1, 3)):
        now = accepted
        for attempt in range(1, rnd.choice([2, 2, 3])):
            now += timedelta(seconds=rnd.expovariate(1 / 600))
            mine = {**fields, "recipient": recipient, "attempt": attempt}
            yield now, "delivery.sent", message, mine
        now += timedelta(seconds=rnd.expovariate(1 / 20_000))
        name = "delivery.acked" if rnd.random() < 0.8 else "delivery.dead"
        yield now, name, message, {**mine, "error": None if "ack" in name else "gave up"}


def courier_story(rnd, message, accepted):
    stream, rate = rnd.choice([("jobs", 1.0), ("chatter", 0.25)])
    now = accepted
    for attempt in (1, 2):
        begin = now + timedelta(seconds=rnd.expovariate(0.5))
        now = begin + timedelta(seconds=rnd.expovariate(1 / 5_000))
        fields = {"accepted_at": accepted, "delivered_at": begin, "attempt": attempt,
                  "stream": stream, "sample_rate": rate}  # fmt: skip
        if rnd.random() < 0.7:
            yield now, "envelope.acked", message, fields
            return
        yield now, "envelope.failed", message, {**fields, "error": "exit code 1"}
    yield now, "envelope.dead", message, {**fields, "error": "exit code 1"}


def run_story(rnd, run, accepted):
    job, last, now = rnd.choice(["nightly", "report"]), rnd.randint(1, 3), accepted
    for attempt in range(1, last + 1):
        begin = now + timedelta(seconds=rnd.expovariate(0.5))
        now = begin + timedelta(seconds=rnd.expovariate(1 / 30_000))
        kinds = ["failed", "lost"] if attempt < last else ["succeeded", "failed", "cancelled"]
        state = rnd.choice(kinds)
        fields = {"accepted_at": accepted, "delivered_at": begin, "attempt": attempt, "job": job,
                  "run_state": state if attempt == last else "queued",
                  "error": "exit code 3" if state == "failed" else None}  # fmt: skip
        yield now, f"attempt.{state}", run, fields


def rows_of(logs):
    return {kind: log.rows for kind, log in logs.items()}


# -- tests --------------------------------------------------------------------------------


def assert_outcomes(rows, logs):
    expected = Counter()
    for row in logs["outbox"]:
        key = (row["ts"].date(), "outbox", row["route"])
        expected[*key, "attempts"] += row["name"].startswith("attempt.")
        expected[*key, "dead"] += row["name"] == "send.dead"
        expected[*key, "accepted"] += row["name"] == "send.accepted"
        expected[*key, "failed"] += row["name"] == "attempt.failed"
    for row in logs["broker"]:
        key = (row["ts"].date(), "broker", f"topic:{row['destination_ref']}")
        expected[*key, "acked"] += row["name"] == "delivery.acked"
        expected[*key, "attempts"] += row["name"] == "delivery.sent"
    for row in logs["courier"]:
        key = (row["ts"].date(), "courier", row["stream"])
        expected[*key, "failed"] += (row["name"] == "envelope.failed") / row["sample_rate"]
        expected[*key, "dead"] += (row["name"] == "envelope.dead") / row["sample_rate"]
    for row in logs["runs"]:
        key = (row["ts"].date(), "runs", row["job"])
        expected[*key, "acked"] += row["name"] == "attempt.succeeded"
        expected[*key, "failed"] += row["name"] in ("attempt.failed", "attempt.lost")
        expected[*key, "dead"] += row["run_state"] in ("failed", "lost")
        if is_near(row["delivered_at"], row["ts"]):
            began = (row["delivered_at"].date(), "runs", row["job"])
            expected[*began, "attempts"] += 1
            expected[*began, "delivered"] += row["attempt"] == 1
    counted = {
        (row["day"], row["log"], row["destination"], name): row[name]
        for row in rows
        for name in schema.COUNTS
    }
    assert {key: value for key, value in expected.items() if value} == {
        key: value for key, value in counted.items() if value and key in expected
    }


def test_runs_over_growing_logs_have_the_numbers_of_plain_python(publish, tmp_path):
    """Acks and ends of deliveries come days after their starts, and some rows come twice."""
    logs = random_logs(random.Random(5))
    everything = rows_of(logs)
    whole = sorted((row for rows in everything.values() for row in rows), key=lambda r: r["ts"])
    for step in range(1, STEPS + 1):
        until = whole[len(whole) * step // STEPS - 1]["ts"]
        for kind, log in logs.items():
            log.rows = [row for row in everything[kind] if row["ts"] <= until]
            log.export(tmp_path / "in")
            first = [row for row in log.rows if row["ts"].date() == MORNING.date()]
            write_segment(tmp_path / "in", kind, first[1:9], form="jsonl")
        report, published = publish()
        assert not any(result.is_error for result in report.results)
    assert_latency(published["latency"], everything)
    assert_outcomes(published["outcomes"], everything)


def test_new_segments_change_only_their_days(publish, make_request, tmp_path):
    log = DeliveryLog("outbox")
    for day in range(3):
        log.add(MORNING + timedelta(days=day), "attempt.delivered", f"m{day}", attempt=1)
    log.export(tmp_path / "in")
    publish()
    before = files(make_request)
    log.add(MORNING + timedelta(days=2, seconds=9), "attempt.failed", "m9", attempt=1, error="x")
    log.export(tmp_path / "in")
    report, published = publish()
    after = files(make_request)
    assert report.counts["days"] == 1
    assert {key for key in before if before[key] != after.get(key)} == {
        ("latency", "2026-02-03"), ("outcomes", "2026-02-03"),
    }  # fmt: skip
    (changed,) = [row for row in published["outcomes"] if str(row["day"]) == "2026-02-03"]
    assert (changed["attempts"], changed["failed"]) == (2, 1)


def files(make_request):
    current = plan.gold(make_request().out).current()
    return {
        (table, file.part): file.path
        for table in ("latency", "outcomes", "dead_letters")
        for file in current.files(table)
    }


def test_rows_that_a_restore_discarded_do_not_count(publish, tmp_path):
    old = DeliveryLog("outbox")
    for number in range(5):
        old.add(at(number), "send.accepted", f"m{number}")
    old.export(tmp_path / "in")
    assert publish()[1]["outcomes"][0]["accepted"] == 5
    new = DeliveryLog("outbox", "epoch-2", last=2**32)
    new.add(at(100_000), "send.accepted", "m9")
    write_segment(tmp_path / "in", "outbox", new.rows, previous_event_id=2)
    _, published = publish()
    accepted = {str(row["day"]): row["accepted"] for row in published["outcomes"]}
    assert accepted == {"2026-02-01": 2, "2026-02-02": 1}


def test_day_whose_segments_were_removed_keeps_its_numbers(publish, make_request, tmp_path):
    log = DeliveryLog("outbox")
    log.add(at(0), "send.accepted", "m1")
    (first,) = log.export(tmp_path / "in")
    publish()
    first.with_name(first.name.replace(".manifest.json", ".parquet")).unlink()
    first.unlink()
    log.add(at(86_400), "send.accepted", "m2")
    log.export(tmp_path / "in")
    _, published = publish()
    assert {str(row["day"]): row["accepted"] for row in published["outcomes"]} == {
        "2026-02-01": 1, "2026-02-02": 1,
    }  # fmt: skip


def test_overlapping_segments_with_different_contents_are_a_warning(
    publish, make_request, tmp_path
):
    log = DeliveryLog("outbox")
    for number in range(4):
        log.add(at(number), "send.accepted", f"m{number}")
    log.export(tmp_path / "in")
    publish()
    write_segment(tmp_path / "in", "outbox", [log.rows[1], {**log.rows[2], "message_id": "other"}])
    report, published = publish()
    (warned,) = [each for each in report.results if each.name == "outbox.agree"]
    assert (warned.failed, warned.note[:11]) == (1, "3 differs i")
    assert [row["accepted"] for row in published["outcomes"]] == [4]
    assert plan.up_to_date(make_request())


def test_requested_days_are_computed_again(publish, make_request, tmp_path):
    log = DeliveryLog("outbox")
    log.add(at(0), "attempt.delivered", "m1", accepted_at=at(-10), attempt=1)
    log.export(tmp_path / "in")
    assert publish()[1]["latency"][0]["within_objective"] == 0
    options = {"objective": plan.objectives("accept_to_deliver=20")}
    report = job.run(
        make_request(options=options, first_day=MORNING.date(), last_day=MORNING.date())
    )
    assert report.counts["days"] == 1
    with pytest.raises(EmptyRange):
        job.run(make_request(options=options, first_day=MORNING.date() + timedelta(days=9)))


def test_bad_segment_is_skipped_and_columns_and_names_are_shown(publish, make_request, tmp_path):
    log = DeliveryLog("outbox")
    for day in range(3):
        log.add(at(day * 86_400), "send.accepted", f"m{day}")
    log.add(at(2 * 86_400), "send.guessed", "m3")
    _, second, third = log.export(tmp_path / "in")
    wider = pq.read_table(segment_of(third)).append_column("region", pa.array(["eu", "eu"]))
    pq.write_table(wider, segment_of(third))
    sign(third)
    sound = segment_of(second).read_bytes()
    segment_of(second).write_bytes(sound[:-1])
    with pytest.raises(SegmentTorn, match=segment_of(second).name):
        publish()
    skipping = {"options": OBJECTIVE | {QUARANTINE: True}}
    report = job.run(make_request(**skipping))
    assert accepted(make_request) == {"2026-02-01": 1, "2026-02-03": 1}
    notes = {result.name: result.note for result in report.results if result.failed}
    assert segment_of(second).name in notes["segments.sound"]
    assert "also has region" in notes["segments.columns"]
    assert notes["events.known"] == "outbox: send.guessed"
    assert {warning.name for warning in plan.warnings(tmp_path / "out")} == set(notes)
    assert plan.up_to_date(make_request(**skipping))
    assert not plan.up_to_date(make_request(options=OBJECTIVE))
    segment_of(second).write_bytes(sound)
    assert not plan.up_to_date(make_request(**skipping))
    job.run(make_request(**skipping))
    assert accepted(make_request) == {"2026-02-01": 1, "2026-02-02": 1, "2026-02-03": 1}
    assert "segments.sound" not in {warning.name for warning in plan.warnings(tmp_path / "out")}


def accepted(make_request):
    rows = tables(make_request, make_request().spark)["outcomes"]
    return {str(row["day"]): row["accepted"] for row in rows}


@pytest.mark.parametrize("log", plan.LOGS)
def test_names_are_those_of_the_exported_schema(log):
    (about,) = [column["about"] for column in shipped(f"{log}-1")["columns"]
                if column["name"] == "name"]  # fmt: skip
    assert tuple(re.findall(r"[a-z]+\.[a-z]+", about)) == schema.NAMES[log]


CAUSES = [
    (None, "unknown"),
    ("  ", "unknown"),
    ("HTTP 503", "HTTP 503"),
    ("exit code 137", "exit code 137"),
    ("status: 503, 2 attempts", "status: 503, <n> attempts"),
    ("status code 404", "status code 404"),
    ("HTTP/1.1 502 after 3 s", "HTTP/1.1 502 after <n> s"),
    ("502 Bad Gateway", "502 Bad Gateway"),
    ("502 bytes missing", "<n> bytes missing"),
    ("rejected: 12 is no address", "rejected: <n> is no address"),
    ("timed out after 30.5 s", "timed out after <n> s"),
    ("timed out after 30s", "timed out after <n>s"),
    ("POST https://hooks.example.com/a/b?x=1 failed", "POST <url> failed"),
    ("no member msg_01HZX3V5Q8J2K4M6N8P0R2T4", "no member <id>"),
    ("key 0123456789abcdef0123456789abcdef is blocked", "key <id> is blocked"),
    ("6f1e8f0a-1b2c-4d3e-8f90-a1b2c3d4e5f6 is gone", "<id> is gone"),
    ("cannot reach hooks.example.com:8443", "cannot reach <host>"),
    ("cannot reach 10.0.0.7:80 now", "cannot reach <host> now"),
    ("a\n  b", "a b"),
    ("x" * 500, "x" * 200),
]


def test_causes_leave_out_what_differs_between_messages(spark):
    frame = spark.createDataFrame([(text,) for text, _ in CAUSES], "error string")
    causes = [row[0] for row in frame.select(t.cause_of(frame.error)).collect()]
    assert causes == [cause for _, cause in CAUSES]


def test_dead_letters_are_grouped_and_rare_causes_counted_together(publish, tmp_path):
    log = DeliveryLog("outbox")
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(schema.CAUSES_MAX + 20)]
    for number, word in enumerate(words):
        log.add(at(number), "send.dead", f"m{number}", error=f"cause {word}")
    for number in range(3):
        log.add(at(1000 + number), "send.dead", f"n{number}", error=f"HTTP 500 at {number}")
    log.export(tmp_path / "in")
    _, published = publish()
    counts = {row["cause"]: row["count"] for row in published["dead_letters"]}
    assert len(counts) == schema.CAUSES_MAX + 1
    assert counts["HTTP 500 at <n>"] == 3
    assert counts[schema.OTHER_CAUSES] == 21
    (frequent,) = [row for row in published["dead_letters"] if row["count"] == 3]
    assert frequent["example"] == "HTTP 500 at 2"


@pytest.mark.parametrize("text", ["x=1", "accept_to_ack", "accept_to_ack=0", "accept_to_ack=a", ""])
def test_malformed_objective_is_refused(text):
    with pytest.raises(Exception, match="is not"):
        plan.objectives(text)
