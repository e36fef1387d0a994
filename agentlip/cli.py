"""The commands `agentlip` and `agentlipd` of an environment that ops/env has made."""

from appliance.cli import agentlip as agentlip
from appliance.cli import agentlipd as agentlipd
