"""Defines the parameters and errors of the web UI's routes."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from appliance.kernel.errors import Missing

Text = Annotated[str, Meta(max_length=4000)]


class ReturnQuery(Struct, frozen=True):
    """The parameters with which an issuer sends a browser back; issuers add more. Only the page
    reads them."""

    ignores_unknown: ClassVar[bool] = True

    code: Text = ""
    state: Text = ""
    error: Text = ""
    error_description: Text = ""


class NoSuchFile(Missing):
    default_message = "the web UI has no such file"
    default_hint = "open /ui/ in a browser"
