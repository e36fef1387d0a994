"""Implements the longer `agentlip courier` commands: enqueue lines, follow streams, pipes,
rules."""

import os
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from appliance.cli_support import Session, note
from appliance.courier.trigger import TriggerRule, check
from appliance.kernel.config import read_toml
from appliance.kernel.errors import Invalid
from appliance.sdk.courier import Consumer, Delivery, Producer, envelope
from appliance.sdk.discovery import find_hub
from appliance.sdk.stdio_protocol import StdioConnection, lines_of, serve_socket

PRINTED_CREDIT = 10  # printing is quick


def enqueue_lines(
    session: Session, stream: str, lines: Iterable[bytes], type_: str, sender: str | None
) -> int:
    """Enqueue each line: an envelope, or a payload if it has no `type`. Returns how many."""
    count = 0
    with Producer(lambda: find_hub(session.workspace)) as producer:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = msgspec.json.decode(line.removeprefix(BOM_UTF8))
            except (msgspec.DecodeError, RecursionError):
                producer.flush()
                raise Invalid(
                    f"line {number} is not JSON; the {count} before it were sent"
                ) from None
            producer.post(stream, _complete(value, type_, sender))
            count += 1
        producer.flush()
    return count


def _complete(value: Any, type_: str, sender: str | None) -> dict[str, Any]:
    if isinstance(value, dict) and "type" in value and "payload" in value:
        made = envelope(value["type"], value["payload"], sender)
        return {**made, **value}
    return envelope(type_, value, sender)


def follow(
    session: Session,
    stream: str,
    command: list[str],
    credit: int | None,
    lease_ms: int | None,
    exit_after: int | None,
    idle_seconds: float | None,
) -> int:
    """Print each envelope or run the command for it. Returns how many failed."""
    credit = credit or (1 if command else PRINTED_CREDIT)
    credit = min(credit, exit_after or credit)
    consumer = Consumer(
        lambda: find_hub(session.workspace),
        stream,
        credit=credit,
        lease_ms=lease_ms,
        say=lambda sentence: note(f"agentlip courier: {sentence}"),
    )
    failed = handled = 0
    with consumer:
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
    variables = {
        "COURIER_ID": delivery.id,
        "COURIER_TYPE": str(delivery.envelope.get("type", "")),
        "COURIER_ATTEMPT": str(delivery.attempt),
    }
    try:
        done = subprocess.run(command, input=text, check=False, env={**os.environ, **variables})
    except OSError as error:  # not the envelope's failure: released when the consumer closes
        raise Invalid(f"{command[0]}: {error.strerror or 'cannot be run'}") from None
    if done.returncode == 0:
        delivery.ack()
        return True
    delivery.nack(error=f"exit code {done.returncode}")
    return False


def serve_pipe(session: Session, path: Path | None) -> None:
    """Serve stdin and stdout, or each client of a Unix socket that only its owner can open."""

    def locate() -> Any:
        return find_hub(session.workspace)

    if path is None:
        out = sys.stdout.buffer
        StdioConnection(locate, lambda line: _put(out, line)).run(lines_of(sys.stdin.buffer))
    else:
        note(f"agentlip courier: listening on {path}")
        serve_socket(locate, path)


def _put(out: IO[bytes], line: bytes) -> None:
    out.write(line)
    out.flush()


def check_settings_file(file: Path) -> tuple[list[str], int]:
    """Return a settings file's trigger problems, and how many triggers there are."""
    tables = read_toml(file)
    courier = tables.get("courier", {})
    rows = courier.get("triggers", []) if isinstance(courier, dict) else None
    if not isinstance(rows, list):
        raise Invalid(f"{file}: courier.triggers is not a list of tables: [[courier.triggers]]")
    rules: list[TriggerRule] = []
    problems = []
    for number, row in enumerate(rows, 1):
        try:
            rules.append(msgspec.convert(row, TriggerRule))
        except msgspec.ValidationError as error:
            problems.append(f"trigger {number}: {error}")
    roles = tables.get("roles", {})
    webhooks = not isinstance(roles, dict) or bool(roles.get("outbox", True))
    return problems + check(rules, webhooks), len(rows)
