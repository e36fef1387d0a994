"""Hooks: declared commands that run when something happens in the inbox.

Nouns: hook (a declared command), run (one hook, one event), grant (a secret by which a run may
send: a reply, a message to the sender, a post into the event's topic; for minutes, no more).

    event ──wanted by──▶ queue ──one of eight runners──▶ running ──▶ ok, failed, timeout,
                           │                                         not_started
                           └── full: dropped, counted

What always holds:
- The event loop, the link and whoever sent wait for no hook.
- A hook has no token of the workspace; what its grant allows is bound to one event.
- Every run is a row, and so is what it did by its grant.
"""
