"""Looks at a workspace and the hub in it, and says what is wrong; it knows all, nobody knows it.

    Context (where, how strict, what the living process says of itself)
       │
    Check ──find──▶ Finding, Finding, …      one row each, in checks/
       │
    verdict: readiness (the cheap rows, critical findings)  ·  exit code (all rows)

What always holds: `find` never writes; `/-/ready`, metrics and the command line read the same
table, so they can't disagree; a legal configuration yields no finding above `info`.
"""
