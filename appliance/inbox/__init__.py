"""Receives messages from meshes, stores each once, and lets callers read and follow them.

    mesh       a closed group of members around one broker
    member     this appliance, identified by its key
    broker     keeps our deliveries until we ack them
    push       a message as the broker sends it
    cursor     the number of the last row that a reader has seen

    broker ──push──▶ BrokerConnection ──receive──▶ row ──▶ feed ──▶ long polls, /v1/events, hooks
                      ▲                             │
                      └──────── client_ack ◀────────┘ after the commit only

Invariants:
- A push is acked only after its row is committed. A repeated push is acked again without a new row
  or event.
- A row belongs to one mesh, and a reader reads one mesh.
- Hooks and events receive each message once, after its commit.
"""
