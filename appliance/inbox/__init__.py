"""The inbox: what meshes sent here, each message once, and the way to hear of it.

Nouns: mesh (a company of members around one broker), broker (who holds our deliveries until
we say that we have them), link (the socket to a broker elsewhere), push (a message as the
broker hands it over), cursor (the number of the last row a reader has seen), member (we).

    broker ──push──▶ link ──receive──▶ row ──▶ feed ──▶ long polls, /v1/events, hooks
                      ▲                 │
                      └── client_ack ◀──┘ only now

What always holds:
- Nothing is acked before it is a row on the disk; what comes again finds the row, is acked
  again, and tells nobody.
- A row belongs to one mesh, and a reader reads one mesh.
- Hooks and events hear of a message after its commit, once.
"""
