"""The broker: accepts each send by a mesh's members exactly once, and delivers until the ack.

    mesh          a closed group of members; everything below belongs to one mesh
    member        an ed25519 key with a name; it signs what it sends, and receives messages
    destination   a topic (every subscriber gets a message) or a queue (one consumer gets it)
    dedupe row    (mesh, client_message_id) → fingerprint and message; exists iff accepted
    delivery row  one recipient's outstanding copy; deleted when the recipient has acked it

    accept:    B1 ──refused──▶ nothing        B0 known id? ──▶ 200 or 409, whatever the rate limit
               └─▶ rate limit ──▶ one transaction { B2 ──refused──▶ nothing ; B3 all rows } ──▶ 201
    delivery:  ready ──claim──▶ leased ──client_ack──▶ deleted
                 ▲                 │
                 └── lease expired, connection closed

Invariants: a dedupe row is written in the same transaction as its message, history, deliveries and
mentions. A refusal writes no row. `orphans.find_orphans` returns nothing.
"""
