"""A lock for greenlets, which is gevent's: `with lock:` waits until no other greenlet has the
lock."""

from gevent.lock import RLock

GreenletLock = RLock
