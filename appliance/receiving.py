"""What this appliance receives from meshes, put together: identity, inbox, hooks."""

import os
from collections.abc import Callable, Collection, Sequence

import msgspec

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.outbox.hooks.parts import Parts as Hooks
from appliance.outbox.identity.parts import Parts as Member
from appliance.outbox.inbox.parts import Parts as Inbox
from appliance.outbox.inbox.settings import BrokerPlace
from appliance.settings import Settings
from appliance.web.route import Route

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class Receiving:
    """The arguments by name are the sender's: brokers it sends to, how many sends wait and are in
    flight, what can be done with sends, and where the days go for which a broker knows ids."""

    def __init__(
        self,
        settings: Settings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        book: TokenBook,
        *,
        places: Sequence[BrokerPlace] = (),
        sends: Callable[[], tuple[int, int]] = lambda: (0, 0),
        send_features: Callable[[], list[str]] = list,
        adopt: Callable[[str, int | None], None] = lambda _mesh, _days: None,
    ) -> None:
        brokers = (*places, *settings.inbox.brokers)
        self.member = Member(
            settings.identity, datadir, clock, log, os.environ, known_to_others=bool(brokers)
        )
        # One reader: a look at the inbox is short, and a waiting one holds none.
        store = msgspec.structs.replace(settings.store, readers=1)
        self.inbox = Inbox(
            settings.inbox, store, datadir, clock, log, self.member.identity, book,
            places=places, sends=sends, send_features=send_features, adopt=adopt,
        )  # fmt: skip
        self.hooks = Hooks(
            settings.hooks, self.inbox.inbox, self.inbox.store, datadir, book, clock, log,
            os.environ, own=self._own_names, url=lambda: own_url(settings.http.host, datadir),
        )  # fmt: skip
        self.loops: list[Loop] = [
            *self.member.loops,
            *self.inbox.loops,
            *self.hooks.loops,
        ]

    @property
    def store(self) -> Store:
        return self.inbox.store

    def routes(self) -> list[Route]:
        return [
            *self.member.routes(self.inbox.tell_rotation),
            *self.inbox.routes(),
            *self.hooks.routes(),
        ]

    def start_up(self) -> None:
        self.hooks.start_up()

    def end(self) -> None:
        """Whoever waits is answered now."""
        self.inbox.end()

    def close(self, timeout_seconds: float) -> bool:
        return self.inbox.close(timeout_seconds)

    def _own_names(self, mesh: str) -> Collection[str]:
        """By what others mention this member: its key, and its name there."""
        named = self.inbox.receivers.get(mesh) or self.inbox.inbox.desks.get(mesh)
        name = getattr(named, "member_name", None)  # a desk elsewhere knows none
        return [self.member.identity.public_hex, *([name] if name else [])]


def own_url(host: str, datadir: DataDir) -> str:
    """Where this process answers on its own machine; known once it has bound."""
    try:
        port = int((datadir.dir / "port").read_text())
    except (OSError, ValueError):
        port = 0
    host = ANY_ADDRESS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
