"""The outbox stores messages durably and delivers them to brokers, webhooks and mail servers.

Terms: a send is one message and its row, with an id chosen by the client. A target delivers it: a
broker, a webhook receiver or a mail server. A route is the unit of concurrency and failure: a
target and a mesh, or a host.

    (no row) ──accept──▶ pending ──claim──▶ inflight ──delivered──▶ done
                           ▲  ▲ │              │ │
                           │  │ └─expire──▶ dead ◀─reject
                           │  └──retry, restart─┘
                           │                     dead, pending ──redrive, drop──▶ aborted
                           └──── a new row with a new id ◀── redrive ────────────────┘

Invariants:
- A send that got 202 is on disk and survives a power failure.
- No row is deleted and no id released; only the payload of an ended send is dropped.
- The fingerprint is computed once, at acceptance.
- Delivery is at least once; receivers recognise duplicates by id.
"""
