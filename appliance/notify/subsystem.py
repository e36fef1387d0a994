"""Messages to the operator as a part of the appliance. Without destinations, nothing runs."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from appliance.host import Host
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.notify import wire
from appliance.notify.loops import NotifyLoop, PingLoop
from appliance.notify.problems import Observed
from appliance.notify.resources import routes
from appliance.notify.service import NoticeSender, Notifier
from appliance.notify.settings import NotifySettings, kind_of

FILE = "notify.json"


class NotifyNeeds(msgspec.Struct, frozen=True):
    """`senders`: by the beginning of a destination. `observe`: what the operator should know.
    `ping` requests a URL; it returns why that failed, or "". `drop_former` drops messages that wait
    for other destinations than these."""

    senders: Mapping[str, NoticeSender]
    observe: Callable[[], Observed]
    ping: Callable[[str], str] | None
    drop_former: Callable[[Sequence[str]], None] | None = None


class NotifySubsystem(Subsystem):
    name = "notify"
    sections = {"notify": NotifySettings}
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: NotifyNeeds) -> None:
        settings, clock, log = host.section(NotifySettings), host.clock, host.log
        self._settings, self._needs = settings, needs
        senders = {to: needs.senders[kind_of(to)] for to in settings.to}
        self._notifier = Notifier(senders, host.datadir.workspace.name, clock, log)
        self.loops: tuple[Loop, ...] = ()
        if senders:
            file = host.datadir.dir / FILE
            self.loops = (NotifyLoop(self._notifier, needs.observe, settings, file, clock, log),)

        if settings.ping and needs.ping is not None:
            self.loops += (
                PingLoop(settings.ping, needs.ping, host.work_done, host.work_failed, clock, log),
            )

    def start(self) -> None:
        if self._needs.drop_former is not None:
            self._needs.drop_former(self._settings.to)

    def routes(self) -> list[Route]:
        return routes(self._notifier)
