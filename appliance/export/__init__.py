"""Processes the log outside the request path: closed segments, snapshots, reports.

A segment is an immutable event file. The manifest is written last, and readers use only segments
with a manifest. Invariants: an event is in exactly one segment that no second segment replaces; a
segment has one date and one epoch, and the ids have no jump.
"""
