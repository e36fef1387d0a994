"""Messages that wait for a plugin: the cursor, what is deferred, and the limit."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.hub.plugins.pending_messages import CREATED, DELETED, EDITED, PendingMessages


@given(
    st.lists(
        st.tuples(
            st.sampled_from([CREATED, EDITED, DELETED, "channel.created", "work", "again"]),
            st.sampled_from("abcde"),
            st.integers(0, 700),
        ),
        max_size=60,
    )
)
def test_cursor_never_passes_unprocessed_messages(steps):
    pending, now, event_id = PendingMessages(0, 1000, 1000, 5000), 0, 0
    waiting = {}
    for what, message, passed in steps:
        now += passed
        if what == "work":
            for item in pending.due(now, 2):
                pending.remove(item)
                waiting.pop(item)
        elif what == "again":
            pending.defer(message, now)
        else:
            event_id += 1
            pending.note(event_id, what, message, now, now)
            if what in (CREATED, EDITED):
                waiting.setdefault(message, event_id)
            elif what == DELETED:
                waiting.pop(message, None)
        assert pending.cursor == min(waiting.values(), default=event_id + 1) - 1
        assert pending.count == len(waiting)
    assert set(pending.due(now + 5000, 99)) == set(waiting)  # nothing is put off forever
