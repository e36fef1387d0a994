"""Rules for settings that are valid alone: the appliance does not start if one is broken.

The start and the doctor call `check_settings`; the subsystems rely on it.
"""

from importlib.util import find_spec
from ipaddress import ip_network
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from appliance.ask.settings import AskSettings
from appliance.courier import trigger
from appliance.courier.settings import CourierSettings
from appliance.export.settings import ExportSettings
from appliance.host import Host
from appliance.hub.plugins.settings import PluginsSettings
from appliance.inbox.brokers import brokers_of
from appliance.inbox.settings import InboxSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.config import BadSettings
from appliance.kernel.log import Log
from appliance.notify.problems import is_quiet
from appliance.notify.settings import NotifySettings, kind_of
from appliance.outbox.expiry import max_age_hours
from appliance.outbox.mail_rules import check_mail
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.settings import Settings
from appliance.web.settings import HttpSettings
from appliance.workspace.datadir import DataDir


def check_settings(settings: Settings, datadir: DataDir) -> None:
    """Raises BadSettings."""
    off, clock, log = settings.roles.off, SystemClock(), Log()
    host = Host(settings, lambda: settings, off, datadir, datadir, clock, log)
    mail, outbox, sends = mail_of(host), host.section(OutboxSettings), host.runs("outbox")
    for text in host.section(HttpSettings).trusted_proxies:
        try:
            ip_network(text, strict=False)
        except ValueError:
            problem = f"{text!r} is neither an address nor a network"
            raise BadSettings(f"settings: http.trusted_proxies: {problem}") from None
    if mail is not None:
        check_mail(mail)
    _check_notify(host, has_mail=mail is not None)
    ask = host.section(AskSettings)
    if host.runs("ask") and ask.mail_to and not (sends and mail and ask.url):
        raise BadSettings("settings: ask.mail_to needs ask.url, the role outbox, and mail.host")
    if host.runs("identity"):
        brokers_of(host.section(InboxSettings), outbox.brokers)
    if sends:
        max_age_hours(outbox.retention_days, outbox.max_age_hours)
    if host.runs("courier"):
        problems = trigger.check(host.section(CourierSettings).triggers, webhooks=sends)
        if problems:
            raise BadSettings(f"settings: courier.triggers: {problems[0]}")
    names = [own.name for own in host.section(PluginsSettings).all]
    if host.runs("plugins") and (twice := [name for name in names if names.count(name) > 1]):
        raise BadSettings(f"settings: plugins.use: two plugins have the name {twice[0]}")
    export = host.section(ExportSettings)
    writes_parquet = export.export and export.export_format == "parquet"
    if host.runs("export") and writes_parquet and find_spec("pyarrow") is None:
        raise BadSettings(
            "settings: export.export: parquet needs pyarrow, which is not installed",
            hint="pip install 'agentlip[export]', or use the image agentlip-export, "
            'or export_format = "jsonl"',
        )


def _check_notify(host: Host, *, has_mail: bool) -> None:
    settings = host.section(NotifySettings)
    try:
        is_quiet(settings.quiet_hours, 0)
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise BadSettings(f"settings: notify.quiet_hours: {error}") from None
    possible = {"http": True, "https": True, "mailto": has_mail, "topic": host.runs("hub")}
    for to in settings.to:
        if not possible[kind_of(to)]:
            needs = "needs mail.host, or the role hub for a topic"
            raise BadSettings(f"settings: notify.to: {to} {needs}")


def mail_of(host: Host) -> MailSettings | None:
    """The settings of mail, which allow the operator's addresses too; None: no mail is sent."""
    settings, notified = host.section(MailSettings), host.section(NotifySettings).addresses
    if not settings.host or not (host.runs("outbox") or notified):
        return None
    allow = (*settings.allow, *host.section(AskSettings).mail_to, *notified)
    return msgspec.structs.replace(settings, allow=allow)
