"""Tokens: who may come in, with what, and until when.

    issued ──rotate──▶ issued (its former secret opens until the grace time is over)
       ├── expires_ms passed ──▶ expired
       └── revoke ──▶ revoked

A secret is told once, when it is issued; here only its SHA-256 is kept. What holds always:
the book that the guard reads says what the table says, and the text of `.agentlip/token` is
the secret of the token `server`.
"""
