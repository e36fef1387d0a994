"""The hub: channels contain topics, topics contain messages, the event log records each change.

Nouns: channel, topic, message, attachment (data of a topic besides its messages), event,
session (one WebSocket following the event log).

    message:  created ──edit──▶ edited ──edit──▶ …
                 └───────delete──────┴──▶ tombstone (the row is kept)

Invariants:
- Every change writes its row and its event in one transaction; an event is never
  changed or removed, a message row never removed.
- `event_id` increases in commit order, the only order of events.
- A message's version increases by one with every change, including a move to another topic; the
channel never changes.
- An attachment never changes, and equal attachments are stored once.
- A response is sent after the event is in every live subscription.
- A session receives every event of its subscription after its cursor at least once.

Source: hub specification, §0.1.1, §0.9, chapters 2 to 4.
"""
