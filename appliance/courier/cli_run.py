"""What the longer commands of `agentlip courier` do: files in, streams out, pipes, rules."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from appliance.cli_support import Session, note
from appliance.courier.trigger import Rule, check
from appliance.kernel.errors import Invalid
from appliance.sdk.courier import Consumer, Delivery, Producer, Renewal, envelope
from appliance.sdk.discovery import find_hub
from appliance.sdk.stdio_protocol import Pipe, lines_of, serve_socket

DEFAULT_LEASE_MS = 30_000


def enqueue_lines(
    session: Session, stream: str, lines: Iterable[bytes], type_: str, sender: str | None
) -> int:
    """Every line an envelope, or only a payload when it has no `type`; how many."""
    count = 0
    with Producer(lambda: find_hub(session.workspace)) as producer:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                raise Invalid(f"line {number} is not JSON; {count} were sent before") from None
            producer.post(stream, _completed(value, type_, sender))
            count += 1
        producer.flush()
    return count


def _completed(value: Any, type_: str, sender: str | None) -> dict[str, Any]:
    if isinstance(value, dict) and "type" in value and "payload" in value:
        made = envelope(value["type"], value["payload"], sender)
        return {**made, **value}
    return envelope(type_, value, sender)


def follow(
    session: Session,
    stream: str,
    command: list[str],
    credit: int,
    lease_ms: int | None,
    exit_after: int | None,
    idle_seconds: float | None,
) -> int:
    """Print or run for each envelope; how many failed."""
    credit = min(credit, exit_after or credit)
    consumer = Consumer(
        lambda: find_hub(session.workspace),
        stream,
        credit=credit,
        lease_ms=lease_ms,
        say=lambda sentence: note(f"agentlip courier: {sentence}"),
    )
    failed = handled = 0
    with consumer, Renewal(consumer.renew, lease_ms or DEFAULT_LEASE_MS):
        for delivery in consumer.deliveries(idle_seconds):
            if delivery is None:
                break
            failed += not _handle(delivery, command)
            handled += 1
            if handled == exit_after:
                break
    return failed


def _handle(delivery: Delivery, command: list[str]) -> bool:
    text = msgspec.json.encode(delivery.envelope) + b"\n"
    if not command:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        delivery.ack()
        return True
    told = {
        "COURIER_ID": delivery.id,
        "COURIER_TYPE": str(delivery.envelope.get("type", "")),
        "COURIER_ATTEMPT": str(delivery.attempt),
    }
    try:
        done = subprocess.run(command, input=text, check=False, env={**os.environ, **told})
    except OSError as error:  # no fault of the envelope, which goes back uncounted
        raise Invalid(f"{command[0]}: {error.strerror or 'cannot be run'}") from None
    if done.returncode == 0:
        delivery.ack()
        return True
    delivery.nack(error=f"exit code {done.returncode}")
    return False


def serve_pipe(session: Session, path: Path | None) -> None:
    """Stdin and stdout, or every client of a Unix socket that only its owner may open."""

    def locate() -> Any:
        return find_hub(session.workspace)

    if path is None:
        out = sys.stdout.buffer
        Pipe(locate, lambda line: _put(out, line)).run(lines_of(sys.stdin.buffer))
    else:
        note(f"agentlip courier: listening on {path}")
        serve_socket(locate, path)


def _put(out: IO[bytes], line: bytes) -> None:
    out.write(line)
    out.flush()


def problems_of(file: Path) -> tuple[list[str], int]:
    """What is wrong with the triggers of a settings file, and how many there are."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{file}: {error}") from None
    courier = tables.get("courier", {})
    rows = courier.get("triggers", []) if isinstance(courier, dict) else None
    if not isinstance(rows, list):
        raise Invalid(f"{file}: courier.triggers is no list of tables: [[courier.triggers]]")
    found: list[Rule] = []
    problems = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(msgspec.convert(row, Rule))
        except msgspec.ValidationError as error:
            problems.append(f"trigger {number}: {error}")
    outbox = tables.get("outbox", {})
    webhooks = not isinstance(outbox, dict) or bool(outbox.get("enabled", True))
    return problems + check(found, webhooks), len(rows)
