"""A workspace with what operators look for: a failed send, dead letters, backups, runs of jobs."""

import time
from itertools import pairwise

from appliance.busfile import claims, heartbeats, workers
from tests.support.bus import BusFixture
from tests.support.courier import envelope
from tests.support.servedhub import ServedHub
from tests.support.until import until

SECONDS_MAX = 30
RUN = {
    "job": "ingest", "started_at": "2026-02-01T08:00:00Z", "finished_at": "2026-02-01T08:01:00Z",
    "seconds": 60.0, "outcome": "failed", "exit_code": 4, "counts": {"rows": 12},
    "error": "the bucket does not answer",
}  # fmt: skip


def fill_queues(hub: ServedHub, stream: str = "builds") -> None:
    """A stream with two dead letters and one envelope that is ready."""
    for number in range(3):
        body = {"to": stream, "envelope": envelope(f"{stream}-{number}")}
        assert hub.http.post("/v1/enqueue", body).status == 200
    got = hub.http.post("/v1/receive", {"stream": stream, "max": 2}).body
    ids = [f"{stream}-{number}" for number in range(2)]
    nack = {"receiver": got["receiver"], "ids": ids, "mode": "reject"}
    assert hub.http.post("/v1/nack", nack).status == 200


def fill_sends(hub: ServedHub, mesh: str = "lab") -> None:
    """A mesh with this appliance as a member, and a send that nothing can receive."""
    hub.made(hub.http.post("/broker/v1/meshes", {"slug": mesh}))
    pubkey = hub.http.get("/v1/identity").body["pubkey"]
    member = {"pubkey": pubkey, "name": "here"}
    hub.made(hub.http.post(f"/broker/v1/meshes/{mesh}/members", member))
    send = {"to": "#nobody", "message": "hello", "mesh": mesh}
    assert hub.http.post("/v1/send", send).status == 202
    failed = "/v1/outbox/sends?status=dead"
    until(lambda: hub.http.get(failed).body["sends"], SECONDS_MAX, "the send is a dead letter")


WORKERS = {  # the states that each went through, the minutes since, and since its last heartbeat
    "parser": (("ASSIGNED",), 2, None),
    "lexer": (("ASSIGNED", "WORKING"), 9, 0),
    "linker": (("ASSIGNED", "WORKING"), 90, 75),
    "docs": (("ASSIGNED", "WORKING", "IN_REVIEW"), 25, 25),
    "ci": (("ASSIGNED", "WORKING", "FAILED"), 40, 40),
    "setup": (("ASSIGNED", "WORKING", "IN_REVIEW", "APPROVED", "COMPLETED"), 180, 180),
}


def fill_bus(hub: ServedHub) -> None:
    """Workers in several states, one of which has no heartbeat any more, and claims."""
    bus = BusFixture(hub.workspace)
    now = int(time.time() * 1000)
    for task, (states, minutes, beat) in WORKERS.items():
        at = now - minutes * 60_000
        bus.run(workers.create, at, task, branch=f"task/{task}", actor="lead")
        for before, after in pairwise(states):
            bus.run(
                workers.transition,
                at,
                task,
                before,
                after,
                actor=task if after == "IN_REVIEW" else "lead",
            )
        if beat is not None:
            bus.run(heartbeats.beat, now - beat * 60_000, task, "working", task, 0.4)
    bus.run(claims.claim, now, "path:src/lexer/*", "lexer", 600_000)
    bus.run(claims.claim, now, "slot:gpu:1", "trainer", 600_000)


def back_up(hub: ServedHub) -> None:
    """A backup that was verified."""
    assert hub.http.post("/api/v1/backups").status == 202
    until(
        lambda: any(
            each["verification"] for each in hub.http.get("/api/v1/backups").body["backups"]
        ),
        SECONDS_MAX * 2,
        "a backup was verified",
    )


def fill_all(hub: ServedHub) -> None:
    fill_queues(hub)
    fill_sends(hub)
    hub.made(hub.http.post("/api/v1/jobs/runs", RUN))
    webhook = {"url": "https://hooks.example.com/in", "description": "the pager"}
    hub.made(hub.http.post("/api/v1/webhooks", webhook))
    fill_bus(hub)
    back_up(hub)
