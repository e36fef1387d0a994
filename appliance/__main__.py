"""`python -m appliance` is `agentlip`."""

from appliance.cli import agentlip

agentlip()
