"""[toy]: notes."""

import msgspec


class ToySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[toy]: notes."""

    notes_max: int = 3  # more are refused
