"""Runs `agentlip doctor` as `python -m doctor`."""

from doctor.cli import app

app(prog_name="doctor")
