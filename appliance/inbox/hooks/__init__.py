"""Runs hooks: configured commands that run on inbox events.

Terms: a run is one hook for one event. A grant is a short-lived token with which a run can send: a
reply, a message to the sender, or a post to the event's topic.

    event ──matched by──▶ queue ──one of eight runners──▶ running ──▶ ok, failed, timeout,
                           │                                         not_started
                           └── full: dropped, counted

Invariants:
- The event loop, the broker connection and senders never wait for a hook.
- A hook gets no workspace token; its grant is bound to one event.
- Every run is recorded, with everything it sent.
"""
