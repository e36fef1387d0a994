"""Bounds outside the agents: pauses, a day's ceilings, and hops between agents in a topic.

    ceiling reached, or HOPS_MAX answers without a person ─▶ pause ◀─ operator
                                                              │
                 post, claim, receive, wait: 409 PAUSED ◀─────┴──▶ no turn of `agent run` begins

Acks, releases, heartbeats and reading go on, so a paused agent can release its work.
"""
