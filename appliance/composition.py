"""Builds the appliance's parts in order.

Each row in ROWS builds one part from the parts in the rows above. A part is a subsystem, or an
object that several subsystems share. A row builds nothing if its role is off ([roles]).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance import builders, builders_work
from appliance.audit.subsystem import AuditSubsystem
from appliance.built import Built
from appliance.host import Host
from appliance.kernel.subsystem import Subsystem
from appliance.oidc.subsystem import OidcSubsystem
from appliance.operations.logs import LogsSubsystem
from appliance.operations.maintenance import MaintenanceSubsystem
from appliance.operations.rates import RatesSubsystem
from appliance.ui.subsystem import UiSubsystem


class Row(NamedTuple):
    """One part. `serves`: whether the part is a subsystem."""

    name: str
    build: Callable[[Built], Any]
    serves: bool = True


def compose(host: Host) -> Built:
    """Build the parts from all rows in order."""
    parts: dict[str, Any] = {}
    subsystems: tuple[Subsystem, ...] = ()
    for name, build, serves in ROWS:
        built = Built(host=host, subsystems=subsystems, **parts)
        part = build(built) if host.runs(name) else None
        parts[name] = part
        if serves and part is not None:
            subsystems = (*subsystems, part)
    return Built(host=host, subsystems=subsystems, **parts)


ROWS = (
    Row("oidc", lambda built: OidcSubsystem(built.host)),
    Row("tokens", builders.build_tokens),
    Row("process", builders.build_process, serves=False),
    Row("hub", builders.build_hub),
    Row("health", builders.build_health),
    Row("bus", builders.build_bus),
    Row("webhook_caller", builders.build_webhook_caller, serves=False),
    Row("broker", builders.build_broker),
    Row("registrations", builders.build_registrations, serves=False),
    Row("webhook_target", builders.build_webhook_target, serves=False),
    Row("mail_targets", builders.build_mail_targets, serves=False),
    Row("keys", builders.build_keys, serves=False),
    Row("inbox_service", builders.build_inbox_service, serves=False),
    Row("mailbox", builders.build_mailbox, serves=False),
    Row("outbox", builders.build_outbox),
    Row("inbox", builders.build_inbox),
    Row("hooks", builders.build_hooks),
    Row("mesh_subscriber", builders.build_mesh_subscriber),
    Row("identity", builders.build_identity),
    Row("webhooks", builders.build_webhooks),
    Row("mesh_webhooks", builders.build_mesh_webhooks),
    Row("courier", builders_work.build_courier),
    Row("incoming", builders_work.build_incoming),
    Row("export", builders_work.build_export),
    Row("bus_topic", builders.build_bus_topic),
    Row("plugins", builders_work.build_plugins),
    Row("blobs", builders_work.build_blobs),
    Row("entries", builders_work.build_entries),
    Row("agents", builders_work.build_agents),
    Row("catchup", builders_work.build_catchup),
    Row("ask", builders_work.build_ask),
    Row("bounds", builders_work.build_bounds),
    Row("a2a", builders_work.build_a2a),
    Row("review_asks", builders_work.build_review_asks),
    Row("network", builders_work.build_network),
    Row("relay", builders_work.build_relay),
    Row("backup", builders.build_backup),
    Row("rates", lambda built: RatesSubsystem(built.host)),
    Row("ui", lambda _built: UiSubsystem()),
    Row("audit", lambda built: AuditSubsystem(built.host)),
    Row("maintenance", lambda built: MaintenanceSubsystem(built.host)),
    Row("forecast", builders.build_forecast),
    Row("logs", lambda built: LogsSubsystem(built.host)),
    Row("latest", builders.build_latest, serves=False),
    Row("notify", builders.build_notify),
    Row("jobs", builders_work.build_jobs),
    Row("doctor", builders.build_doctor),
)
