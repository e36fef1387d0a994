"""An OpenID Connect issuer's access tokens, for MCP clients that can't set a header.

Nouns: issuer (signs the tokens), resource (the public URL of `/mcp`, the tokens' audience), key (a
public key from the issuer), grant (a value in a claim, and the scopes that it gives here).

Invariants:
- No request fetches anything: a loop fetches the keys, and a request waits for it a few seconds at
  most.
- A token is verified by an issuer's key, with an algorithm for that key's type. The token's own
  header chooses neither another type, nor another source for keys.
- Nothing is granted that the settings don't name.
"""
