"""The mesh protocol as both ends share it: signed texts, frames, negotiation, fingerprints. Pure.

Sender, broker and receiver compute these independently and compare bytes, so a change here is a
change of the protocol (docs/reference/broker.md).
"""
