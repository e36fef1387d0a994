"""Asks: questions that agents ask and people answer.

An ask is a message of the hub with a row of `x_asks` beside it; its answer is a message in the same
topic. Both are written in one transaction, so other programs see an ordinary conversation, and an
ask is settled exactly once.

    waiting ─┬─ answer ──────────────▶ answered
             ├─ deadline, a default ─▶ defaulted
             ├─ deadline ────────────▶ expired
             └─ cancel ──────────────▶ cancelled
"""
