"""The vocabulary for checks: findings, the context that a check reads, and repair steps.

Subsystems declare their checks here, and the doctor runs them.
"""
