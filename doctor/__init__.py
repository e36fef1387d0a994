"""Finds problems in a workspace and its hub. It may import every subsystem; none imports it.

    Context (workspace, thresholds, facts of the running process)
       │
    Check ──find──▶ Finding, Finding, …      one row each, in checks/
       │
    readiness (cheap checks, critical findings)  ·  exit code (all checks)

Invariants: `find` never writes; `/-/ready`, metrics and the command line use the same table
of checks; a valid configuration yields no finding above `info`.
"""
