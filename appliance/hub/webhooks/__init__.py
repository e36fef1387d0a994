"""Webhooks: who wants to be called about which events, where, and signed with what.

Nouns: webhook (a registration with a secret and a cursor), address (where it points),
signature (Standard Webhooks), pending event (behind the cursor and wanted).

What always holds:
- A webhook is configuration: making or changing one writes no event.
- Its cursor is the event_id up to which it has been served; nothing here moves it but
  whoever says so in a PATCH. Sending is not done here.
- Its secret is shown when it is made or replaced, and never again.
"""
