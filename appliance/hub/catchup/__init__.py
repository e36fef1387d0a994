"""Summaries for an agent after a break, within a budget; topic states, handoff notes and pins.

    open ── resolve ──▶ resolved          no note ── write ──▶ version 1 ── write ──▶ version 2 …
      ▲                    │
      └───── reopen ───────┘

`queries.py` reads each part of a catch-up, the most urgent first, `budget.py` decides how much of
each part fits, and `writes.py` changes topics and pins, each with its event.
"""
