"""What is done with the log outside the request path: closed segments, snapshots, reports.

A segment is an immutable file of events with a manifest beside it, written last. A reader
believes manifests only. What always holds: an event is in exactly one segment that no other
segment replaces; a segment holds one date, one epoch and no jump of ids.
"""
