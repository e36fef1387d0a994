"""A loop that works between two subsystems, as a subsystem of its own."""

from appliance.kernel.loop import Loop
from appliance.kernel.subsystem import Subsystem


class LoopBetween(Subsystem):
    """Suspended while one of the stores that the loop uses is damaged."""

    name = "loop"

    def __init__(self, loop: Loop, *stores: str) -> None:
        self.name = loop.name
        self.loops = (loop,)
        self.needed_stores = frozenset(stores)
