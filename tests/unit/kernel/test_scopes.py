"""Scopes of several subsystems together."""

from appliance.kernel.scopes import Scopes, join


def test_scopes_of_subsystems_are_joined():
    hub = Scopes(frozenset({"hub:read"}), {"hub:read": ("hub:",)}, frozenset({"hub:read"}))
    courier = Scopes(frozenset({"streams:use"}), {"streams:use": ("streams:",)})
    every = join([hub, courier, Scopes()])
    assert every.grantable == {"hub:read", "streams:use"}
    assert every.implied == {"hub:read": ("hub:",), "streams:use": ("streams:",)}
    assert every.free == {"hub:read"}
