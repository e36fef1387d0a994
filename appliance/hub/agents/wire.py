"""Defines requests, replies and errors of woken agents."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.hub.bounds.wire import Because, PauseSeconds
from appliance.hub.entries.wire import EntryId
from appliance.hub.wire import Limit
from appliance.kernel.errors import Exhausted, Missing

AGENTS_MAX = 10_000
NAME_LENGTH_MAX = 200  # as senders
TURNS_KEPT = 100  # for each agent
OUTPUT_BYTES_MAX = 8192
ENTRIES_MAX = 50  # entries that one turn is given
PAGE_MAX = 200

AgentState = Literal["asleep", "working", "waiting", "stopped"]
Outcome = Literal["done", "failed", "late", "stopped"]
RunId = Annotated[str, Meta(min_length=1, max_length=64)]
Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
Cost = Annotated[float, Meta(ge=0, le=1e12)]
Ids = Annotated[list[EntryId], Meta(max_length=ENTRIES_MAX)]


class TurnReport(Struct, frozen=True):
    """One turn that ended. `late`: it had to be ended. `open`: entries it left unsettled.
    `tokens`, `cost`: as the turn reported them."""

    number: Annotated[int, Meta(ge=1)]
    began_at: Annotated[str, Meta(max_length=40)]
    seconds: Annotated[float, Meta(ge=0)]
    outcome: Outcome
    code: int
    entries: Ids
    open: Ids
    output: Annotated[str, Meta(max_length=OUTPUT_BYTES_MAX)] = ""
    tokens: Tokens = 0
    cost: Cost = 0.0


class Report(Struct, frozen=True, omit_defaults=True):
    """A waking program's report. `begins`: a program's first report, which replaces an older
    program. `escalate`: entries that become overdue, because no turn settles them."""

    run_id: RunId
    state: AgentState
    begins: bool = False
    turn: TurnReport | None = None
    escalate: Ids = []


class Pause(Struct, frozen=True):
    by: str
    at: str
    reason: str | None
    until: str | None


class Runner(Struct, frozen=True):
    run_id: str
    state: AgentState
    state_since: str


class ReportTaken(Struct, frozen=True):
    """`pause`: no turn may start. `newest`: false if another program has this name now. `runner`:
    that program, or the program that a beginning program replaces; its turn may still run.
    `last_turn`: the newest turn's id."""

    pause: Pause | None
    newest: bool
    runner: Runner | None = None
    last_turn: int = 0


class PauseAgent(Struct, frozen=True, omit_defaults=True):
    """Without `seconds`, until somebody resumes it."""

    reason: Because | None = None
    seconds: PauseSeconds | None = None


class ResumeAgent(Struct, frozen=True):
    pass


class Agent(Struct, frozen=True):
    """`open`: entries in its inbox, at most 1,000. `reported_at`: null if nothing runs it."""

    name: str
    state: AgentState
    state_since: str
    reported_at: str | None
    pause: Pause | None
    open: int


class AgentShown(Struct, frozen=True):
    agent: Agent


class AgentsQuery(Struct, frozen=True):
    after: Annotated[str, Meta(max_length=200, description="`next` of the previous page")] = ""
    limit: Limit = 50


class AgentList(Struct, frozen=True):
    agents: list[Agent]
    has_more: bool = False
    next: str = ""


class Turn(Struct, frozen=True):
    id: int
    name: str
    began_at: str
    seconds: float
    outcome: Outcome
    code: int
    entries: list[int]
    open: list[int]
    output: str
    tokens: int = 0
    cost: float = 0.0


class TurnsQuery(Struct, frozen=True):
    limit: Limit = 20


class TurnList(Struct, frozen=True):
    """Turns, newest first."""

    turns: list[Turn]


class NoSuchAgent(Missing):
    default_message = "no program has reported an agent with this name"
    default_hint = "agentlip agent status"


class TooManyAgents(Exhausted):
    code = "TOO_MANY_AGENTS"
    default_message = "too many agents"
    default_hint = "agentlip agent status"
