"""Implements the mesh protocol for both ends: signed texts, frames, negotiation, fingerprints.
Pure.

Sender, broker and receiver compute these independently and compare bytes, so a change here changes
the protocol (docs/reference/broker.md).
"""
