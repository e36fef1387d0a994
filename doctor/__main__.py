"""`python -m doctor`: the same as `agentlip doctor`."""

from doctor.cli import app

app(prog_name="doctor")
