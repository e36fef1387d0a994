"""Serves the agent network's relay: agents' identity, contacts and presence. Never a message.

    agent     (nothing) ─ register ─▶ pending ─ approve ─▶ active ─ revoke ─▶ revoked
                                         └───────────── revoke ──────────────────▲
    contact   (nothing) ─ request ─▶ pending ─ accept ─▶ active ─ remove ─▶ (nothing)
                            ▲           └─ deny ─▶ (nothing)

Terms: an admin holds an admin key, beside its agent's key. An agent receives an event for each
contact change. A broadcast is signed by an admin and readable for all agents.

Invariants:
- A revoked agent never becomes valid again, and its name and key are never reused.
- Every signed request changes data at most once: the signature is stored with the change.
- An agent sees a contact's endpoint only while both want the contact.
"""
