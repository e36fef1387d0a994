"""Agents that are woken: a program starts a turn when entries wait, and reports here.

    asleep ─ entries ─▶ working ─ all settled ─▶ asleep
                           └ failed, or left entries ─▶ waiting ─▶ working

`agentlip agent run` is that program. The program runs beside the agent's files, so the hub
only knows reports.
"""
