"""Two served appliances: `home` has a broker and is a member of its mesh, `away` is another."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.client import NOW, Http
from tests.bench.served import Served
from tests.bench.target import RowFailed, Target

MESH = "bench"
LINK_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
# As shipped, but for room for a whole row, and writers in processes of their own.
BOTH = f"""
[outbox]
mesh = "{MESH}"
sends_max = 10000000

[inbox]
mesh = "{MESH}"
"""
HOME = f"""{BOTH}
[broker]
rate_per_second = 1000000
"""
AWAY = f"""{BOTH}
[[outbox.brokers]]
mesh = "{MESH}"
url = "http://127.0.0.1:{{port}}"
"""


class End:
    """One of the two: where to ask it, its key, and its inbox's file."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._file = target.database.with_name("inbox.sqlite3")
        http = Http(target)
        self.key = str(http.call("GET", "/v1/identity")["pubkey"])
        http.close()

    def newest(self) -> int:
        """The number of the last row of its inbox."""
        return int(self._ask("SELECT coalesce(max(number), 0) FROM inbox"))

    def received(self, after: int) -> int:
        """Different messages in its inbox since row `after`."""
        sql = "SELECT count(DISTINCT client_message_id) FROM inbox WHERE number > ?"
        return int(self._ask(sql, after))

    def _ask(self, sql: str, *parameters: Any) -> Any:
        uri = self._file.as_uri() + "?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql, parameters).fetchone()[0]


@contextmanager
def pair(folder: Path) -> Iterator[tuple[End, End]]:
    """(home, away), members of one mesh and connected."""
    for name in ("home", "away"):
        (folder / name).mkdir()
    (folder / "home" / "agentlip.toml").write_text(HOME)
    with Served(folder / "home") as at_home:
        home = End(at_home.target)
        (folder / "away" / "agentlip.toml").write_text(AWAY.format(port=home.target.port))
        with Served(folder / "away") as elsewhere:
            away = End(elsewhere.target)
            http = Http(home.target)
            http.call("POST", "/broker/v1/meshes", {"slug": MESH})
            for name, end in (("home", home), ("away", away)):
                member = {"pubkey": end.key, "name": name}
                http.call("POST", f"/broker/v1/meshes/{MESH}/members", member)
            http.close()
            for end in (home, away):
                wait_for_link(end)
            yield home, away


def wait_for_link(end: End) -> None:
    http, deadline = Http(end.target), NOW() + LINK_SECONDS_MAX
    while not any(
        link["state"] in ("connected", "local")
        for link in http.call("GET", f"/v1/health?mesh={MESH}")["links"]
    ):
        if NOW() > deadline:
            raise RowFailed("the appliances do not find one another")
        time.sleep(POLL_SECONDS)
    http.close()
