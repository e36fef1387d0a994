"""The courier: a queue of envelopes, pushed to whoever has credit, leased until they are acked.

Nouns: envelope (what travels), stream (a bounded ring of envelopes), taker (who receives:
a socket or one HTTP receive), credit (how many a taker may still get), lease (an envelope
in one taker's hands until a deadline), trigger (a rule run on insert), view (what is kept
up to date beside the streams).

    put ─▶ ready ──claimed──▶ leased ──finished──▶ gone
            ▲  ▲                │ │ │
            │  └─released, expired  │ └─rejected, failed too often─▶ dead ─redriven─▶ ready
         due│                   failed                              │
            └──── delayed ◀─────┘                                   └─purged─▶ gone

What always holds:
- An envelope is in exactly one of ready, delayed, leased and dead until it is gone, and
  what is gone is counted: acked, or dropped with a reason.
- One lease at most on an envelope; one at most on all envelopes of a partition key.
- Nothing is delivered without credit, and no taker leads the others by more than 4.
- First deliveries keep the order of arrival; what comes back goes to the tail.
- Memory streams are forgotten with the process; `boot_id` in every reply says so.

The wire keeps its specification's words: ack is finish, nack is release, fail or reject.
"""
