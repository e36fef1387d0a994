"""Converts mesh, member and webhook rows to wire structs."""

from appliance.broker import webhook_wire, wire
from appliance.broker.rows import MemberRow, MeshRow, WebhookRow
from appliance.kernel.clock import iso
from appliance.kernel.registered_webhook import secrets_of
from appliance.kernel.steady_clock import SteadyClock


def mesh_to_wire(row: MeshRow) -> wire.Mesh:
    return wire.Mesh(
        row.slug,
        row.dedupe_mode,
        row.dedupe_retention_days,
        row.message_retention_days,
        row.concurrency,
        iso(row.created_ms),
    )


def member_to_wire(
    row: MemberRow,
    connected: bool = False,
    running_on: str | None = None,
    refused: str | None = None,
) -> wire.Member:
    return wire.Member(
        row.pubkey,
        row.name,
        "active" if row.revoked_ms is None else "revoked",
        iso(row.added_ms),
        connected,
        row.successor,
        running_on,
        refused,
    )


def webhook_to_wire(row: WebhookRow, steady: SteadyClock) -> webhook_wire.MeshWebhook:
    """Return the view, without secrets."""
    rotating = len(secrets_of(row, steady.now_ms())) > 1
    return webhook_wire.MeshWebhook(
        row.id,
        row.url,
        iso(row.added_ms),
        enabled=bool(row.enabled),
        failing_since=steady.wall_iso(row.failing_since_ms),
        disabled_because=row.disabled_because,
        rotating_until=steady.wall_iso(row.former_until_ms if rotating else None),
    )
