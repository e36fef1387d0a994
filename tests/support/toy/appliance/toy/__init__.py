"""Notes: a subsystem as small as one can be, added by a test as CONTRIBUTING says."""
