"""The plugins' wire format: their output, requests, responses, errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.hub.wire import DedupeKey, EventId, Kind
from appliance.kernel.errors import Invalid, Missing

PluginName = Annotated[str, Meta(min_length=1, max_length=64)]
Offset = Annotated[int, Meta(ge=0, description="in characters (code points)")]


# -- plugin output ---------------------------------------------------------------------------


class TextSpan(Struct, frozen=True):
    """A text span, from `start` to before `end`, in the message text's characters (code points)."""

    start: Offset
    end: Offset


class EnrichmentFinding(Struct, frozen=True):
    """An enrichment in a linkifier's output and in `message.enriched`."""

    kind: Kind
    span: TextSpan
    data: dict[str, Any] = {}


class Extract(Struct, frozen=True):
    """An attachment in an extractor's output."""

    kind: Kind
    value_json: dict[str, Any]
    key: Annotated[str, Meta(max_length=100, description="empty: none")] | None = None
    dedupe_key: DedupeKey | None = None


class MessageEnriched(Struct, frozen=True):
    """All enrichments by `plugin` for this version; earlier versions' enrichments are void."""

    message_id: str
    enrichments: list[EnrichmentFinding]
    plugin: str
    version: int
    principal: str | None = None


# -- requests --------------------------------------------------------------------------------


class ReEnrich(Struct, frozen=True):
    """Reprocess messages posted or edited after event `since`; `plugins`: only by these."""

    since: EventId
    plugins: Annotated[list[PluginName], Meta(max_length=100)] = []


# -- replies ---------------------------------------------------------------------------------

State = Literal["running", "idle", "paused", "broken"]


class Isolation(Struct, frozen=True):
    """The isolation of the plugin's process, tested at its last start and confirmed by the kernel.
    `user`: its user if another than the appliance's; `landlock`: the version in force, 0 for
    none; `seccomp`: system calls are filtered; `uid`: its user id.

    `denied` or `open`: `write` and `read` the data directory; read `files` of the workspace; open
    `network` sockets; start `subprocesses`; signal other `processes`; create `namespaces` and
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
    """Return what the plugin can do without permission; `network`, `subprocesses`: the
    permissions."""
    allowed = {"files"} | {
        name for name, may in (("network", network), ("subprocesses", subprocesses)) if may
    }
    missing = [
        step for step in STEPS if step not in allowed and getattr(isolation, step) != "denied"
    ]
    return [*missing, "root"] if isolation.uid == 0 else missing


class PluginStatus(Struct, frozen=True):
    """A plugin's status. `lag`: events between its cursor and the log's end. `done`, `failed`:
    messages since the start. `redo`: a `re-enrich` request's events that are left to process."""

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
    plugins: list[PluginStatus]


class Redo(Struct, frozen=True):
    plugin: str
    after: int
    until: int


class ReEnrichTaken(Struct, frozen=True):
    """The request is stored and survives a restart; new messages are processed as well."""

    taken: list[Redo]


class Enrichment(Struct, frozen=True):
    """`plugin`: the plugin with this finding; null: written by another program."""

    id: str
    kind: str
    span: TextSpan
    data: dict[str, Any]
    plugin: str | None
    created_at: str


class EnrichmentList(Struct, frozen=True):
    """The current text's enrichments; empty for a deleted message."""

    message_id: str
    version: int
    enrichments: list[Enrichment]
    has_more: bool = False


# -- errors ----------------------------------------------------------------------------------


class NoSuchPlugin(Missing):
    default_message = "plugin not found or not in use"
    default_hint = "agentlip plugin list"


class PluginUnfit(Invalid):
    code = "PLUGIN_UNFIT"
    default_message = "a required plugin can't run"
    default_hint = "fix the plugin, or set required = false in [[plugins.use]] in agentlip.toml"
