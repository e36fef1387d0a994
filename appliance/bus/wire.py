"""Defines the worker bus over HTTP: structs and errors. Messages, claims and workers have their
tables' fields."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.busfile.claims import LEASE_MS, LEASE_MS_MAX, BusClaim
from appliance.busfile.messages import NAME_LENGTH_MAX, POLL_MAX, BusMessage
from appliance.busfile.workers import State, WorkerStatus
from appliance.kernel.errors import Forbidden, Unavailable
from appliance.kernel.scopes import Scopes

READ, WRITE, APPROVE = "bus:read", "bus:write", "bus:approve"
SCOPES = Scopes(frozenset({READ, WRITE, APPROVE}), {READ: (WRITE,)})
WAIT_SECONDS_MAX = 60.0  # longest long poll; a longer one is clamped

BusName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
WaitSeconds = Annotated[
    float,
    Meta(
        ge=0, le=86_400, description=f"wait up to this many seconds, at most {WAIT_SECONDS_MAX:.0f}"
    ),
]
Lease = Annotated[float, Meta(gt=0, le=LEASE_MS_MAX / 1000, description="seconds")]
SequenceNumber = Annotated[int, Meta(ge=0, le=2**62)]
DEFAULT_LEASE_SECONDS = LEASE_MS / 1000


class PublishBusMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `to_agent` all agents get the message. Without `id`, the request's Idempotency-Key is
    the id; a message with a known id is published once."""

    from_agent: BusName
    type: BusName
    to_agent: BusName | None = None
    correlation_id: BusName | None = None
    in_reply_to: BusName | None = None
    payload: Any = None
    id: BusName | None = None


class BusPollQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: messages with a higher number; default: the agent's cursor."""

    agent: BusName
    after: SequenceNumber | None = None
    limit: Annotated[int, Meta(ge=1, le=POLL_MAX)] = POLL_MAX
    wait: WaitSeconds = 0.0


class BusMessages(Struct, frozen=True):
    """`head`: the newest message's number."""

    messages: list[BusMessage]
    head: int


class BusStreamQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `agent`, the messages to all agents. `after`: default: new messages only."""

    agent: BusName | None = None
    after: SequenceNumber | None = None


class BusSearchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    q: Annotated[str, Meta(min_length=1, max_length=300)]
    limit: Annotated[int, Meta(ge=1, le=POLL_MAX)] = 20


class BusAck(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything up to `seq` has been handled."""

    agent: BusName
    seq: SequenceNumber


class BusCursor(Struct, frozen=True):
    agent: str
    last_acked_seq: int


class ClaimTask(Struct, frozen=True, forbid_unknown_fields=True):
    task: BusName
    agent: BusName
    lease_seconds: Lease = DEFAULT_LEASE_SECONDS
    wait: WaitSeconds = 0.0


class ReleaseClaim(Struct, frozen=True, forbid_unknown_fields=True):
    task: BusName
    agent: BusName
    fence: int | None = None


class RenewClaim(ReleaseClaim, frozen=True, forbid_unknown_fields=True):
    lease_seconds: Lease = DEFAULT_LEASE_SECONDS


class CompleteTask(Struct, frozen=True, forbid_unknown_fields=True):
    task: BusName
    agent: BusName
    fence: int
    payload: Any = None


class Released(Struct, frozen=True):
    """`released`: false if nobody had the claim."""

    released: bool


class Claims(Struct, frozen=True):
    claims: list[BusClaim]


class Beat(Struct, frozen=True, forbid_unknown_fields=True):
    """`status`: idle, working or blocked. `progress`: 0 to 1."""

    agent: BusName
    status: BusName = "working"
    task: BusName | None = None
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None


class Beaten(Struct, frozen=True):
    agent: str
    ts_ms: int


class WorkersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    state: State | None = None


class Workers(Struct, frozen=True):
    workers: list[WorkerStatus]


class ChangeState(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_state": "from"}):
    """The state changes only if it still is `from`."""

    from_state: State
    to: State
    actor: BusName


class ChangeTaskState(ChangeState, frozen=True, forbid_unknown_fields=True):
    task: BusName


class StateNotAllowed(Forbidden):
    code = "BUS_STATE_NOT_ALLOWED"
    default_message = "without bus:approve, a token changes its own tasks only, and approves none"
    default_hint = "agentlip token create --name NAME --scope bus:write --scope bus:approve"


class TooManyBusWaits(Unavailable):
    code = "TOO_MANY_BUS_WAITS"
    default_message = "too many callers wait for the bus"
    default_hint = "poll without `wait`, or end some waits"


class TooManyBusStreams(Unavailable):
    code = "TOO_MANY_BUS_STREAMS"
    default_message = "too many bus event streams"
    default_hint = "close a stream that is no longer read"


class BusItem(msgspec.Struct, frozen=True):
    """A new message, for waiting callers, who read the table."""

    number: int
    to_agent: str | None
    data: bytes = b""

    def concerns(self, agent: str | None) -> bool:
        return agent is None or self.to_agent is None or self.to_agent == agent
