"""The tokens and the cost that a turn reports: a JSON file, which AGENTLIP_USAGE_FILE names."""

from pathlib import Path

import msgspec

from appliance.hub.agents.wire import Cost, Tokens
from appliance.kernel.errors import Invalid

FILE = "AGENTLIP_USAGE_FILE"
BYTES_MAX = 4096


class TurnUsage(msgspec.Struct, frozen=True):
    """`cost`: in any unit, such as dollars. `problem`: why the file was not counted."""

    tokens: Tokens = 0
    cost: Cost = 0.0
    problem: str | None = None


def read(file: Path) -> TurnUsage:
    """Return what the file reports. A missing file reports nothing, and so does a wrong one."""
    try:
        with file.open("rb") as opened:
            return msgspec.json.decode(opened.read(BYTES_MAX), type=TurnUsage)
    except FileNotFoundError:
        return TurnUsage()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return TurnUsage(problem=str(error))


def add(file: str | None, tokens: int, cost: float) -> TurnUsage:
    """Add to the turn's file, and return the sum. Raises Invalid outside a turn, and if the turn's
    end would not count the sum."""
    if not file:
        raise Invalid(
            "this is not a turn: AGENTLIP_USAGE_FILE is not set",
            hint="agentlip agent run NAME -- COMMAND sets it for COMMAND",
        )
    former = read(Path(file))
    usage = TurnUsage(former.tokens + tokens, former.cost + cost, former.problem)
    try:
        if usage.problem is not None:
            raise ValueError(usage.problem)
        msgspec.convert(msgspec.to_builtins(usage), TurnUsage)
        Path(file).write_bytes(msgspec.json.encode(usage))
    except (OSError, ValueError) as error:
        raise Invalid(
            f"AGENTLIP_USAGE_FILE: the turn's usage can't be written: {error}",
            hint='write {"tokens": 1200, "cost": 0.04}',
        ) from error
    return usage
