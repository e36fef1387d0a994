"""An event between greenlets, which is gevent's: `set` wakes the one that waits.

`clear` forgets earlier calls of `set`. Look for work after this call, not before.
"""

from gevent.event import Event

Wakeup = Event
