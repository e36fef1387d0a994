"""The agents' face: the hub's verbs as tools of the Model Context Protocol, at `/mcp`.

Nouns: message (one JSON-RPC object in one POST), era (with a handshake up to 2025-11-25, or
without from 2026-07-28 on), tool (a row of `tools.TOOLS`), resource (a topic by its URI).

What always holds:
- Nothing is kept between two requests: no session, no stream, no handshake state.
- A tool calls one verb of a service, with the caller's own principal and its scopes.
- A mistake in the protocol is a JSON-RPC error; a refusal by the appliance is a tool result
  with `isError`, the code and the hint, so that a model can mend what it asked for.
"""
