"""Errors of a request to another server that got no complete response."""


class Unreachable(Exception):
    """There was no complete response. The message names the kind of failure, never an address."""


class NotConnected(Unreachable):
    """No connection was made, so nothing was sent."""
