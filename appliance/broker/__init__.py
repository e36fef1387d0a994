"""The broker: the receiver's promise. What it has accepted once, it has accepted exactly once.

    mesh          a closed company of members; everything below belongs to one
    member        an ed25519 key with a name; signs what it sends, receives what is meant for it
    topic, queue  places: every subscriber of a topic gets a message, one consumer of a queue does
    dedupe row    (mesh, client_message_id) → fingerprint and message; exists iff accepted
    delivery row  one receiver's copy that is still outstanding; goes when the receiver has said so

    accept:    B1 ──refused──▶ nothing        B0 known? ──▶ 200 or 409, whatever the limits say
               └─▶ limit ──▶ one transaction { B2 ──refused──▶ nothing ; B3 all rows } ──▶ 201
    delivery:  ready ──claimed──▶ leased ──client_ack──▶ gone
                 ▲                  │
                 └── lease expired, connection gone, receiver failed

What always holds: a dedupe row is written in the transaction of message, history, deliveries and
mentions, or not at all; `inspect.orphans` finds nothing. A refusal leaves no row behind.
"""
