"""Defines [a2a]: the agents that take work from agents elsewhere."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from appliance.kernel.config import BadSettings

Url = Annotated[str, Meta(max_length=200, pattern=r"^(https?://[^\s?#]+[^\s?#/])?$")]
AgentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Line = Annotated[str, Meta(min_length=1, max_length=500)]


class A2aSkillSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[a2a.agents.skills]]: something that the agent can do."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    description: Line
    name: Annotated[str, Meta(max_length=100)] = ""
    tags: Annotated[tuple[Line, ...], Meta(max_length=20)] = ()
    examples: Annotated[tuple[Line, ...], Meta(max_length=20)] = ()


class A2aAgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[a2a.agents]]: an agent that takes work. `name`: whose inbox the work arrives in. `stream`:
    the courier stream whose consumers do the work, for an agent with several workers."""

    name: AgentName
    description: Line
    skills: Annotated[tuple[A2aSkillSettings, ...], Meta(min_length=1, max_length=20)]
    stream: Annotated[str, Meta(max_length=256)] = ""


class A2aSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[a2a]: work from agents elsewhere. Agent cards are public."""

    agents: Annotated[tuple[A2aAgentSettings, ...], Meta(max_length=50)] = ()
    """agents that take work; each has a card and an endpoint, `/a2a/NAME`"""

    channel: Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^/]+$")] = "a2a"
    """channel in which each task is a topic; the first task makes it"""

    url: Url = ""
    """this appliance's address in agent cards, such as `https://hub.example.com`; empty: the
    address on this machine"""

    deadline_seconds: Annotated[int, Meta(ge=0, le=2_592_000)] = 86_400
    """seconds until a task fails that the agent has not acknowledged; 0: never"""

    def check_given(self, _given: Mapping[str, Any]) -> None:
        names = [agent.name for agent in self.agents]
        if len(set(names)) < len(names):
            raise BadSettings(
                "settings: [[a2a.agents]] has the same name twice",
                hint="give each agent one row, with all its skills",
            )
