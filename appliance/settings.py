"""Generated from what the subsystems declare: `just settings`."""

import msgspec

from appliance.backup.settings import BackupSettings
from appliance.broker.settings import BrokerSettings
from appliance.bus.settings import BusSettings
from appliance.checks.settings import DoctorSettings
from appliance.courier.settings import CourierSettings
from appliance.export.settings import ExportSettings
from appliance.hub.a2a.settings import A2aSettings
from appliance.hub.ask.settings import AskSettings
from appliance.hub.blobs.settings import BlobSettings
from appliance.hub.plugins.settings import PluginsSettings
from appliance.hub.settings import HubSettings
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.identity.settings import IdentitySettings
from appliance.inbox.hooks.settings import HookSettings
from appliance.inbox.settings import InboxSettings
from appliance.jobs.settings import JobsSettings
from appliance.kernel.writer import StoreSettings
from appliance.mailbox.settings import NetworkSettings
from appliance.oidc.settings import OidcSettings
from appliance.operations.settings import LogSettings, NotifySettings
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.relay.settings import RelaySettings
from appliance.roles import RolesSettings
from appliance.tokens.settings import AuthSettings
from appliance.web.settings import HttpSettings, LimitSettings
from appliance.web.socket import SocketSettings


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of agentlip.toml, with their defaults."""

    http: HttpSettings = HttpSettings()
    limits: LimitSettings = LimitSettings()
    socket: SocketSettings = SocketSettings()
    store: StoreSettings = StoreSettings()
    roles: RolesSettings = RolesSettings()
    log: LogSettings = LogSettings()
    a2a: A2aSettings = A2aSettings()
    ask: AskSettings = AskSettings()
    backup: BackupSettings = BackupSettings()
    blobs: BlobSettings = BlobSettings()
    broker: BrokerSettings = BrokerSettings()
    bus: BusSettings = BusSettings()
    courier: CourierSettings = CourierSettings()
    doctor: DoctorSettings = DoctorSettings()
    export: ExportSettings = ExportSettings()
    hooks: HookSettings = HookSettings()
    hub: HubSettings = HubSettings()
    identity: IdentitySettings = IdentitySettings()
    inbox: InboxSettings = InboxSettings()
    jobs: JobsSettings = JobsSettings()
    network: NetworkSettings = NetworkSettings()
    notify: NotifySettings = NotifySettings()
    oidc: OidcSettings = OidcSettings()
    outbox: OutboxSettings = OutboxSettings()
    mail: MailSettings = MailSettings()
    plugins: PluginsSettings = PluginsSettings()
    relay: RelaySettings = RelaySettings()
    auth: AuthSettings = AuthSettings()
    webhooks: WebhookSettings = WebhookSettings()
