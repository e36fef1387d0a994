"""Webhooks: registrations of receivers for events, with filters and signing secrets.

Nouns: webhook (a registration with a secret and a cursor), address (its URL), signature
(Standard Webhooks), pending event (a wanted event after the cursor).

Invariants:
- Webhooks are configuration: creating or changing one writes no event.
- The cursor is the event_id up to which events were handed to the outbox for sending.
- A secret is shown once, when created or replaced.
"""
