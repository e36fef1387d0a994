"""What both ends of a mesh share: signed texts, negotiation, request fingerprints. Pure.

Sender, broker and receiver compute these alone and compare bytes, so a change here is a change
of the protocol (docs/broker.md).
"""
