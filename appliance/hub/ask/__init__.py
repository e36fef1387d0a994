"""Asks people: questions that agents post and people answer.

An ask is a hub message with a row in `x_asks`; the answer is another message in the topic. Both are
written in one transaction, so other programs see an ordinary conversation, and an ask is settled
exactly once.

    waiting ─┬─ answer ──────────────▶ answered
             ├─ deadline, a default ─▶ defaulted
             ├─ deadline ────────────▶ expired
             └─ cancel ──────────────▶ cancelled
"""
