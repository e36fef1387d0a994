"""Wraps gevent's event between greenlets: `set` wakes the one that waits.

`clear` forgets earlier calls to `set`. Look for work after this call, not before.
"""

from gevent.event import Event

Wakeup = Event
