"""An inbox for each name: the messages addressed to it, and what became of each.

    stored ─ list ─▶ listed ─ acknowledge ─▶ acknowledged
        └───────────────┴──── decline ─────▶ declined

`hub/addressing.py` writes entries when a message is posted, and `hub/receipts.py` reads what the
sender can know. Here are the recipient's verbs: each caller may use its sender names' inboxes.
"""
