"""N1: envelopes by bare primitives. N2: a relay with a thousand agents."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import thread_time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.kernel.clock import SystemClock
from appliance.network.envelope import Correspondence, open_envelope, signed_text
from tests.bench.figures import Figure, Row, median, percentiles
from tests.bench.machine import Meter, Metered
from tests.bench.network.agents import key, make_relay, signed
from tests.bench.network.schedule import send_as_planned
from tests.bench.served import Served

PAYLOAD = {"text": "The build is green. " * 10}
AGENTS, RATE, HEALTH_RATE = 1_000, 100, 20
MESSAGE_ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"


class Sizes:
    """How much work a row does. `quick` proves that the rows run, not how fast."""

    def __init__(self, quick: bool) -> None:
        self.rounds = 3 if quick else 15
        self.envelopes = 200 if quick else 1_000
        self.seconds = 3 if quick else 60


class Bench(Metered):
    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder, self.sizes = folder, sizes
        self.warnings: list[str] = []


def n1(bench: Bench) -> Row:
    row = Row("N1", "envelopes sealed and opened, by the primitives alone; by turns in one process")
    now_ms = SystemClock().now_ms()
    to_bert = Correspondence(key("anna"), "anna", key("bert").public, "bert")
    of_anna = Correspondence(key("bert"), "bert", key("anna").public, "anna")
    sealed = to_bert.seal(PAYLOAD, MESSAGE_ID, now_ms)
    body, plaintext = json.dumps(sealed).encode(), json.dumps(PAYLOAD).encode()
    private, cipher = Ed25519PrivateKey.generate(), AESGCM(os.urandom(32))
    public, text, nonce = private.public_key(), signed_text(sealed), os.urandom(12)
    signature, ciphertext = private.sign(text), cipher.encrypt(nonce, plaintext, text[:200])

    def bare_seal() -> None:
        cipher.encrypt(os.urandom(12), plaintext, text[:200])
        private.sign(text)

    def bare_open() -> None:
        public.verify(signature, text)
        cipher.decrypt(nonce, ciphertext, text[:200])

    pairs = {
        "seal": (bare_seal, lambda: to_bert.seal(PAYLOAD, MESSAGE_ID, now_ms)),
        "open": (bare_open, lambda: open_envelope(body, "bert", lambda _: of_anna, now_ms)),
    }
    for name, (bare, ours) in pairs.items():
        ratios, each = [], []
        for _ in range(bench.sizes.rounds):
            alone = _seconds(bare, bench.sizes.envelopes)
            each.append(_seconds(ours, bench.sizes.envelopes))
            ratios.append(alone / each[-1])
        row.figures.append(Figure(f"{name}, by the primitives", median(ratios), "", at_least=0.7))
        row.figures.append(Figure(f"{name}, each", median(each) * 1000, "ms"))
    return row


def _seconds(call: Callable[[], object], count: int) -> float:
    """CPU time, so that other programs of the machine change nothing."""
    began = thread_time()
    for _ in range(count):
        call()
    return (thread_time() - began) / count


def n2(bench: Bench) -> Row:
    """What a thousand agents send: a heartbeat with its reads each five minutes, which are five
    of thirty requests here, and checks of presence."""
    row = Row("N2", f"{RATE} signed requests a second of {AGENTS} agents, at planned instants")
    names = [f"agent-{number}" for number in range(AGENTS)]
    endpoints = {name: f"https://{name}.example.org/network/inbox" for name in names}
    contacts = [tuple(sorted((name, names[(i + 1) % AGENTS]))) for i, name in enumerate(names)]
    workspace = bench.folder / "relay"
    make_relay(workspace, endpoints, contacts)  # type: ignore[arg-type]
    with Served(workspace) as served:
        target = served.target
        plan = []
        for number in range(RATE * bench.sizes.seconds):
            name, other = names[number % AGENTS], names[(number + 1) % AGENTS]
            body = json.dumps({"endpoint": endpoints[name], "version": "2.1"}).encode()
            heartbeat = [
                ("PUT", "/presence", body), ("GET", "/contacts"), ("GET", "/contacts/events"),
                ("GET", "/admin/broadcasts"), ("GET", "/admin/keys"),
            ]  # fmt: skip
            kinds = [*heartbeat, *[("GET", f"/presence/{other}")] * 25]
            request = kinds[number % len(kinds)]
            kind = "change" if request[0] == "PUT" else "read"
            plan.append((number / RATE, kind, signed(target, name, *request)))
        health = f"GET /health HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n\r\n".encode()
        for number in range(HEALTH_RATE * bench.sizes.seconds):
            plan.append(((number + 0.5) / HEALTH_RATE, "health", health))
        meter = Meter(target.pid)
        with meter:
            seconds = send_as_planned(target, sorted(plan, key=lambda planned: planned[0]))
    seconds["signed"] = seconds["read"] + seconds["change"]
    by_kind = {kind: percentiles(values) for kind, values in seconds.items()}
    bench.metered(row, "a minute", meter, **by_kind)
    ratio = by_kind["signed"]["p99_ms"] / by_kind["health"]["p99_ms"]
    row.figures = [
        Figure("CPU, of a core", meter.cores["server"], "", below=0.6),
        Figure("p99, by that of /health", ratio, "", below=2.0),
        Figure("p99", by_kind["signed"]["p99_ms"], "ms"),
    ]
    return row


ROWS = {"N1": n1, "N2": n2}
