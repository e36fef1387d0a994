"""Manages access tokens: names, scopes and expiry.

    issued ──rotate──▶ issued (the former secret stays valid for the grace period)
       ├── expires_ms passed ──▶ expired
       └── revoke ──▶ revoked

A secret is returned only at its issue; only the SHA-256 is stored.

Invariants:
- The in-memory token book has exactly the table's valid tokens.
- `.agentlip/token` contains the secret that the token `server` has.
"""
