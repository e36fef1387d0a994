"""Hooks of agent harnesses: what an agent is told at its session's start, at the end of each turn,
and before an edit.

Nouns: harness (the program in which a model works), hook (a command that a harness runs at an
event), moment (what an event is for us), answer (the JSON that a harness reads).

Invariants:
- A hook never blocks its harness: a time limit counts for everything, and an appliance that does
  not answer makes an empty answer.
- A turn is continued once at most, and an entry continues no session twice.
- Nothing that others wrote gets into an answer, except their names.
"""
