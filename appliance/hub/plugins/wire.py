"""What crosses the door about plugins: what they say, requests, replies, errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Invalid, Missing

Kind = Annotated[str, Meta(min_length=1, max_length=100)]
Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
EventId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PluginName = Annotated[str, Meta(min_length=1, max_length=64)]
Offset = Annotated[int, Meta(ge=0, description="in characters (code points)")]


# -- what plugins say ------------------------------------------------------------------------


class Span(Struct, frozen=True):
    """From `start` to before `end`, in characters (code points) of the message's text."""

    start: Offset
    end: Offset


class Finding(Struct, frozen=True):
    """An enrichment, as a linkifier gives it and `message.enriched` tells it."""

    kind: Kind
    span: Span
    data: dict[str, Any] = {}


class Extract(Struct, frozen=True):
    """An attachment, as an extractor gives it."""

    kind: Kind
    value_json: dict[str, Any]
    key: Annotated[str, Meta(max_length=100, description="empty: none")] | None = None
    dedupe_key: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class MessageEnriched(Struct, frozen=True):
    """All that `plugin` finds in this version; what it found in a former one is void."""

    message_id: str
    enrichments: list[Finding]
    plugin: str
    version: int
    principal: str | None = None


# -- requests --------------------------------------------------------------------------------


class ReEnrich(Struct, frozen=True):
    """Messages posted or edited after event `since` are done again; `plugins`: only by these."""

    since: EventId
    plugins: Annotated[list[PluginName], Meta(max_length=100)] = []


class ReExtract(Struct, frozen=True):
    """One message is done again, now; `plugins`: only by these (default: all extractors)."""

    message_id: Id
    plugins: Annotated[list[PluginName], Meta(max_length=100)] = []


# -- replies ---------------------------------------------------------------------------------

State = Literal["running", "idle", "paused", "broken", "off"]


class Isolation(Struct, frozen=True):
    """What the plugin's process found when it tried, at its last start, as far as the kernel says
    the same. `user`: the one it runs as, if another than the appliance's; `landlock`: the version
    that holds, 0 for none; `seccomp`: its calls are filtered; `uid`: its user.

    `denied` or `open`: `write` and `read` the data directory; read `files` of the workspace; open
    sockets to the `network`; start `subprocesses`; signal other `processes`; make `namespaces` and
    System V `shared_memory`; outlive the appliance and its supervisor (`survival`)."""

    user: int | None = None
    landlock: int = 0
    seccomp: bool = False
    write: str = "open"
    read: str = "open"
    network: str = "open"
    subprocesses: str = "open"
    uid: int | None = None
    no_new_privs: bool = False
    pid_namespace: bool = False
    files: str = "open"
    processes: str = "open"
    namespaces: str = "open"
    shared_memory: str = "open"
    survival: str = "open"


STEPS = (
    "write", "read", "files", "network", "subprocesses", "processes", "namespaces",
    "shared_memory", "survival",
)  # fmt: skip


def gaps(isolation: Isolation, network: bool, subprocesses: bool) -> list[str]:
    """What it may do though nobody allowed it; `network` and `subprocesses`: the settings."""
    allowed = {"files"} | {
        name for name, may in (("network", network), ("subprocesses", subprocesses)) if may
    }
    found = [step for step in STEPS if step not in allowed and getattr(isolation, step) != "denied"]
    return [*found, "root"] if isolation.uid == 0 else found


class Plugin(Struct, frozen=True):
    """`lag`: events between its cursor and the log's end. `done`, `failed`: messages since the
    start. `redo`: what is left of the events that `re-enrich` asked for."""

    name: str
    type: str
    source: str
    digest: str
    version: str
    state: State
    reason: str
    required: bool
    breaker: str
    pause_seconds: float
    cursor: int
    lag: int
    pending: int
    redo: int
    done: int
    failed: int
    isolation: Isolation | None


class PluginList(Struct, frozen=True):
    plugins: list[Plugin]


class Redo(Struct, frozen=True):
    plugin: str
    after: int
    until: int


class ReEnrichTaken(Struct, frozen=True):
    """Taken down; done beside what comes in, also after a restart."""

    taken: list[Redo]


class Ran(Struct, frozen=True):
    """`stored`, `same` (nothing new), `stale` (changed meanwhile), or how it failed."""

    plugin: str
    outcome: str
    items: int


class ReExtracted(Struct, frozen=True):
    message_id: str
    results: list[Ran]


class Enrichment(Struct, frozen=True):
    """`plugin`: which found it; null for what another program wrote."""

    id: str
    kind: str
    span: Span
    data: dict[str, Any]
    plugin: str | None
    created_at: str


class EnrichmentList(Struct, frozen=True):
    """Those of the text as it is: none of a tombstone, none of a text before an edit."""

    message_id: str
    version: int
    enrichments: list[Enrichment]
    has_more: bool = False


# -- errors ----------------------------------------------------------------------------------


class NoSuchPlugin(Missing):
    sentence = "no such plugin is in use"
    advice = "agentlip plugin list"


class PluginUnfit(Invalid):
    code = "PLUGIN_UNFIT"
    sentence = "a required plugin can't run"
    advice = "mend it, or take 'required' away in [[plugins.use]] of agentlip.toml"
