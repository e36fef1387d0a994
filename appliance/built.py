"""Holds the parts that are built so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, TypeVar

if TYPE_CHECKING:
    from appliance.audit.subsystem import AuditSubsystem
    from appliance.broker.subsystem import BrokerSubsystem
    from appliance.bus.subsystem import BusSubsystem
    from appliance.courier.subsystem import CourierSubsystem
    from appliance.host import Host
    from appliance.hub.ask.subsystem import AskSubsystem
    from appliance.hub.bounds.subsystem import BoundsSubsystem
    from appliance.hub.catchup.subsystem import CatchUpSubsystem
    from appliance.hub.entries.subsystem import EntriesSubsystem
    from appliance.hub.subsystem import HubSubsystem
    from appliance.hub.webhooks.service import Webhooks
    from appliance.identity.service import MemberIdentity
    from appliance.inbox.service import Inbox
    from appliance.inbox.subsystem import InboxSubsystem
    from appliance.kernel.process_identity import ProcessIdentity
    from appliance.kernel.subsystem import Subsystem
    from appliance.mailbox.service import Mailbox
    from appliance.monitoring.loops import LatestOutcomes
    from appliance.oidc.subsystem import OidcSubsystem
    from appliance.operations.maintenance import MaintenanceSubsystem
    from appliance.outbox.subsystem import OutboxSubsystem
    from appliance.outbox.target import DeliveryTarget
    from appliance.outbox.webhook import WebhookTarget
    from appliance.tokens.subsystem import TokensSubsystem
    from appliance.web.webhook_caller import WebhookCaller
    from doctor.subsystem import DoctorSubsystem

Part = TypeVar("Part")


class Built:
    """The parts from the rows so far, by row name.

    None: the role is off, or the settings don't need the part. Reading a later row's part raises
    AttributeError. A Built never changes: each row gets a new one.

    subsystems  in start order; they close in reverse order
    """

    host: Host
    subsystems: tuple[Subsystem, ...]
    tokens: TokensSubsystem
    oidc: OidcSubsystem
    process: ProcessIdentity
    hub: HubSubsystem | None
    bus: BusSubsystem | None
    webhook_caller: WebhookCaller | None
    broker: BrokerSubsystem | None
    registrations: Webhooks | None
    webhook_target: WebhookTarget
    mail_targets: tuple[DeliveryTarget, ...]
    keys: MemberIdentity | None
    inbox_service: Inbox | None
    mailbox: Mailbox | None
    outbox: OutboxSubsystem | None
    inbox: InboxSubsystem | None
    entries: EntriesSubsystem | None
    catchup: CatchUpSubsystem | None
    ask: AskSubsystem | None
    bounds: BoundsSubsystem | None
    courier: CourierSubsystem | None
    audit: AuditSubsystem
    maintenance: MaintenanceSubsystem
    latest: LatestOutcomes
    doctor: DoctorSubsystem

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{name} can't be replaced: a row gets another Built")

    @property
    def db_id(self) -> str:
        """Return the hub database's id; "" without a hub."""
        return "" if self.hub is None else self.hub.hub.db_id


def require(part: Part | None) -> Part:
    """Return a part that the row's role requires."""
    assert part is not None
    return part
