"""Defines [hub]: the message hub's limits."""

import msgspec


class HubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_retopic_batch: int = 1000  # messages moved by one request; 10,000 block writes up to 1 s
