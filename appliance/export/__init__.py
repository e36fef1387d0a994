"""Work on the log outside the request path: closed segments, snapshots, reports.

A segment is an immutable file of events. Its manifest is written last, and readers use only
segments with a manifest. Invariants: an event is in exactly one segment that no other segment
replaces; a segment has one date and one epoch, and its ids have no jump.
"""
