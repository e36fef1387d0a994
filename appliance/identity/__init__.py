"""Who this appliance is towards meshes: one ed25519 key, tied to the machine it was made on.

Nouns: member (the key, known to brokers by its public half), host fingerprint (by which a
copied workspace notices that it is a copy), archive (what a rotated-out key leaves behind).

    (nothing) ──first start──▶ keys ◀──────remint──────┐
                                │ │                    │
                       rotation │ └─another machine──▶ refused ──accept-host──▶ keys
                                ▼
                     next keys ──every broker took them──▶ keys; the old ones to the archive

What always holds:
- Files of `.agentlip/identity/` are the owner's alone, written whole or not at all.
- A signing key that is no longer in force is nowhere; the archive keeps what decrypts, and
  only for its grace time.
- An ephemeral member is never on the disk.
"""
