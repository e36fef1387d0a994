"""Versions that must open a workspace before a newer one does.

A migration that needs what an earlier version did in the background (a backfill, for example) adds
a row to `HARD_STOPS`. A workspace that lacks it is then refused before anything is changed, at the
start and by `agentlip migrate`.
"""

import msgspec

from appliance.kernel.errors import Conflict


class HardStop(msgspec.Struct, frozen=True, kw_only=True):
    """A store that is older than `schema` must be opened by `version` first.

    schema   the newest step of `store` that `version` has
    reason   completes the sentence "version … must open it first, because …"
    """

    store: str
    schema: int
    version: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"version {self.version} must open it first, because {self.reason}"

    @property
    def hint(self) -> str:
        return (
            f"pip install 'agentlip[appliance]=={self.version}' && agentlipd up && agentlipd down;"
            " then install this version again"
        )


HARD_STOPS: tuple[HardStop, ...] = ()
"""All hard stops, oldest first for each store."""


class UpgradeStopped(Conflict):
    code = "UPGRADE_STOPPED"
    default_message = "another version must open the data first"
    default_hint = "agentlip upgrade --check"


def stop_of(store: str, schema: int) -> HardStop | None:
    """The first hard stop of a file with that newest step; None if it can be migrated. A file
    without any step of this program (0) has none."""
    stops = [each for each in HARD_STOPS if each.store == store and 0 < schema < each.schema]
    return min(stops, key=lambda each: each.schema, default=None)
