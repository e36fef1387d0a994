"""The Model Context Protocol at `/mcp`: the hub's operations as tools for agents.

Nouns: message (one JSON-RPC object in one POST), era (with a handshake up to 2025-11-25, or
without from 2026-07-28 on), tool (a row of a subsystem's `tools()`), resource (a topic by its
URI).

Invariants:
- No state is kept between requests: no session, stream or handshake.
- A tool calls one operation of a service with the caller's own principal and scopes.
- Protocol errors are JSON-RPC errors. Refusals by the appliance are tool results with `isError`,
  code and hint, so that a model can correct its call.
"""
