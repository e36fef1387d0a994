"""Makes a subsystem from a loop that works between two others."""

from appliance.kernel.loop import Loop
from appliance.kernel.subsystem import Subsystem


class LoopBetween(Subsystem):
    """One loop, suspended while a store that it uses is damaged."""

    name = "loop"

    def __init__(self, loop: Loop, *stores: str) -> None:
        self.name = loop.name
        self.loops = (loop,)
        self.needed_stores = frozenset(stores)
