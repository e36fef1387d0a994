"""[ask]: questions to people by mail."""

from typing import Annotated

import msgspec
from msgspec import Meta

Address = Annotated[str, Meta(max_length=254, pattern=r"^[^@\s*,]+@[^@\s*,]+$")]
Url = Annotated[str, Meta(max_length=200, pattern=r"^(https?://[^\s?#/]+(/[^\s?#]*)?)?$")]


class AskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[ask]: questions to people by mail. The mail contains a link that can answer."""

    mail_to: tuple[Address, ...] = ()  # addresses that get each question; needs `host` of `[mail]`
    url: Url = ""  # this appliance's address for these people, such as `https://hub.example.com`
