"""The outbox: the sender's promise. What was answered is on the disk, and an id is never reused.

Nouns: send (a row with an id of the client's), mesh (where it goes), target (what delivers it),
route (what is slow or broken as one: a target and a mesh, or a host), fingerprint.

    (no row) ──accept──▶ pending ──claim──▶ inflight ──delivered──▶ done
                           ▲  ▲ │              │ │
                           │  │ └─max age─▶ dead ◀─refused
                           │  └──later, restart─┘
                           │                     dead, pending ──requeue, drop──▶ aborted
                           └──── a new row with a new id ◀── requeue ────────────────┘

What always holds:
- A 202 is a row that survives a loss of power.
- A row is never deleted and its id never released; what goes is the payload of an ended send.
- The fingerprint is computed once, when the send is accepted.
- Delivery is at least once; the receiver knows a repetition by its id.
"""
