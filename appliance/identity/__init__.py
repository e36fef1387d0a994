"""The member key: the appliance's identity in meshes, one ed25519 key, bound to its machine.

Terms: brokers know a member by its public key. The host fingerprint identifies the machine, so that
a copied workspace is detected. The archive keeps the decryption keys of rotated-out keys.

    (nothing) ──first start──▶ keys ◀──────remint──────┐
                                │ │                    │
                       rotation │ └─another machine──▶ refused ──accept-host──▶ keys
                                ▼
                     next keys ──accepted by every broker──▶ keys; the old ones are archived

Invariants:
- Only the owner can read the files in `.agentlip/identity/`, which are written atomically.
- A rotated-out signing key is deleted; the archive keeps only the decryption key, for the grace
period.
- An ephemeral key is never on disk.
"""
