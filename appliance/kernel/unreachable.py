"""Defines errors for requests to another server that got no complete response."""


class Unreachable(Exception):
    """No complete response arrived. The message names the kind of failure, never an address."""


class NotConnected(Unreachable):
    """No connection was made, so nothing was sent."""
