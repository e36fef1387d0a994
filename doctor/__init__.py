"""Find problems in a workspace and its hub. The doctor may import every subsystem, and no
subsystem imports the doctor.

    Context (workspace, thresholds, facts about the running process)
       │
    Check ──find──▶ Finding, Finding, …      one row each, in checks/
       │
    readiness (cheap checks, critical findings)  ·  exit code (all checks)

Invariants: `find` never writes; `/-/ready`, metrics and the command line share one table; a valid
configuration yields no finding above `info`.
"""
