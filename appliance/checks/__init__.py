"""The vocabulary of checks: findings, the context that a check reads, and the steps of a repair.

Subsystems declare their checks with it, and the doctor runs them.
"""
