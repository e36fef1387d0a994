"""Defines the errors on the web UI's routes."""

from appliance.kernel.errors import Missing


class NoSuchFile(Missing):
    default_message = "the web UI has no such file"
    default_hint = "open /ui/ in a browser"
