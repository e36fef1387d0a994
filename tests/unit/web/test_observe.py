"""Observing must not remember what strangers make up."""

from appliance.kernel.log import Log
from appliance.web.observe import ObserveMiddleware
from tests.support.clock import FakeClock
from tests.support.http import Lines


def test_unknown_methods_are_not_cached() -> None:
    observe = ObserveMiddleware(Log(Lines()), FakeClock(), "instance-1")
    for number in range(100):
        observe._observer(f"MADEUP{number}", "/notes", "404", None)
    assert observe._observers == {}
    observe._observer("GET", "/notes", "200", None)
    assert len(observe._observers) == 1
