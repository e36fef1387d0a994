"""Hooks for agent harnesses: a catch-up at a session's start, waiting entries after each turn, and
claims before an edit.

Nouns: harness (the program in which a model works), hook (a command that a harness runs at an
event), moment (our name for an event), answer (the JSON for the harness).

Invariants:
- A hook never blocks its harness: a time limit covers all requests, and an appliance without a
  response makes an empty answer.
- A turn is continued once at most, and an entry continues no session twice.
- Texts by others get into an answer only in the catch-up, marked as data.
"""
