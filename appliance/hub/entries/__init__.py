"""An inbox for each name, with the messages addressed to the name.

    stored ─ list ─▶ listed ─ acknowledge ─▶ acknowledged
        └───────────────┴──── decline ─────▶ declined

`hub/addressing.py` writes entries when a message is posted, and `hub/receipts.py` reads receipts
for the sender. Here are the recipient's verbs. Callers may use their sender names' inboxes.
"""
