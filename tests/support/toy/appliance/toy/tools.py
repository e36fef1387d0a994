"""The tool for agents: list notes."""

from collections.abc import Sequence

from appliance.toy import wire
from appliance.toy.service import Toy

from appliance.kernel.tool import Tool


def tools(toy: Toy) -> Sequence[Tool]:
    return [
        Tool(
            "toy_list", "List notes", "All notes.",
            wire.NoArguments, wire.Notes, wire.READ, lambda _arguments, _who: toy.notes(),
        ),
    ]  # fmt: skip
