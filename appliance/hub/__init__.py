"""The hub: channels hold topics, topics hold messages, and the event log holds it all.

Nouns: channel, topic, message, attachment (what a topic has beside its messages), event,
session (one socket's way through the log).

    message:  created ──edit──▶ edited ──edit──▶ …
                 └───────delete──────┴──▶ tombstone (stays a row for ever)

What always holds:
- Every change writes its row and its event in one transaction; an event is never
  changed or removed, a message row never removed.
- `event_id` rises in the order of commits and is the only order there is.
- A message's version rises by one with every change of it, a move to another topic included;
  its channel never changes.
- An attachment is never changed, and the same one is there once.
- A reply is sent after the event is in every live subscription.
- A session gets every event of its subscription after its cursor, at least once.

Source: hub specification, §0.1.1, §0.9, chapters 2 to 4.
"""
