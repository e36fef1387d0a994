"""The courier: streams of envelopes, pushed to consumers with credit and leased until acked.

Producers send envelopes. A stream is a bounded queue of envelopes. A consumer is a socket or one
HTTP receive; its credit says how many more envelopes it accepts. A lease gives one envelope to one
consumer until a deadline. A trigger is a rule that runs when an envelope is enqueued. A view is a
table that is kept up to date beside the streams.

    enqueue ─▶ ready ──claim──▶ leased ──ack──▶ done
                ▲  ▲              │ │ │
                │  └─release,     │ │ └─reject, deliveries_max reached─▶ dead ─redrive─▶ ready
                │    expire ──────┘ │                                     │
           due  └──── delayed ◀─fail┘                                     └─purge─▶ gone

Invariants:
- An envelope is in exactly one of the states `ready`, `delayed`, `leased` and `dead` until it is
  removed. Removed envelopes are counted as acked (`done`), or as dropped with a reason (`gone`).
- A lease ends as `courier/lease.py` allows. `delayed` is added here: ready after a delay.
- An envelope has at most one lease, and so have all envelopes of one partition key together.
- Nothing is delivered without credit, and no consumer is more than 4 envelopes ahead of another.
- First deliveries keep the order of arrival. Envelopes that come back go to the tail.
- Streams in memory end with the process; `boot_id` in every reply shows a new process.

On the wire the words of the specification are used: nack means release, fail or reject.
"""
