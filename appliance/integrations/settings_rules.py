"""Checks settings against each other: the appliance does not start if a rule is broken.

The start and the doctor call `check_settings`; the subsystems rely on it.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from ipaddress import ip_network

import msgspec

from appliance.courier import trigger
from appliance.courier.settings import CourierSettings
from appliance.export.settings import ExportSettings
from appliance.host import Host
from appliance.hub.ask.settings import AskSettings
from appliance.hub.plugins.settings import PluginsSettings
from appliance.inbox.brokers import brokers_of
from appliance.inbox.settings import InboxSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.config import BadSettings
from appliance.kernel.log import Log
from appliance.operations.problems import is_quiet
from appliance.operations.settings import NotifySettings, kind_of
from appliance.outbox import ordering
from appliance.outbox.expiry import max_age_hours
from appliance.outbox.mail_rules import check_mail
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.settings import Settings
from appliance.web.settings import HttpSettings
from appliance.workspace.datadir import DataDir


def check_settings(settings: Settings, datadir: DataDir) -> None:
    """Check every rule. Raises BadSettings."""
    off, clock, log = settings.roles.off, SystemClock(), Log()
    host = Host(settings, lambda: settings, off, datadir, datadir, clock, log)
    mail, outbox = mail_of(host), host.section(OutboxSettings)
    if mail is not None:
        check_mail(mail)
    if host.runs("identity"):
        brokers_of(host.section(InboxSettings), outbox.brokers)
    if host.runs("outbox"):
        max_age_hours(outbox.retention_days, outbox.max_age_hours)
        ordering.parse(outbox.in_order)
    for problem in (*_problems(host, mail), *_problems_of_notify(host, mail)):
        raise BadSettings(f"settings: {problem}")
    export = host.section(ExportSettings)
    writes_parquet = export.export and export.export_format == "parquet"
    if host.runs("export") and writes_parquet and find_spec("pyarrow") is None:
        raise BadSettings(
            "settings: export.export: parquet needs pyarrow, which is not installed",
            hint="pip install 'agentlip[export]', or use the image agentlip-export, "
            'or export_format = "jsonl"',
        )


def _problems(host: Host, mail: MailSettings | None) -> Iterator[str]:
    ask, sends = host.section(AskSettings), host.runs("outbox")
    if host.runs("ask") and ask.mail_to and not (sends and mail and ask.url):
        yield "ask.mail_to needs ask.url, the role outbox, and mail.host"
    if host.runs("courier"):
        for problem in trigger.check(host.section(CourierSettings).triggers, webhooks=sends):
            yield f"courier.triggers: {problem}"
    names = [own.name for own in host.section(PluginsSettings).all]
    if host.runs("plugins") and (twice := [name for name in names if names.count(name) > 1]):
        yield f"plugins.use: two plugins have the name {twice[0]}"
    for text in host.section(HttpSettings).trusted_proxies:
        try:
            ip_network(text, strict=False)
        except ValueError:
            yield f"http.trusted_proxies: {text!r} is neither an address nor a network"


def _problems_of_notify(host: Host, mail: MailSettings | None) -> Iterator[str]:
    settings = host.section(NotifySettings)
    try:
        is_quiet(settings.quiet_hours, 0)
    except (ValueError, KeyError) as error:  # KeyError: an unknown zone
        yield f"notify.quiet_hours: {error}"
    possible = {"http": True, "https": True, "mailto": mail, "topic": host.runs("hub")}
    for to in settings.to:
        if not possible[kind_of(to)]:
            yield f"notify.to: {to} needs mail.host, or the role hub for a topic"


def mail_of(host: Host) -> MailSettings | None:
    """Return the mail settings, extended by the operator's addresses; None: no mail is sent."""
    settings, notified = host.section(MailSettings), host.section(NotifySettings).addresses
    if not settings.host or not (host.runs("outbox") or notified):
        return None
    allow = (*settings.allow, *host.section(AskSettings).mail_to, *notified)
    return msgspec.structs.replace(settings, allow=allow)
