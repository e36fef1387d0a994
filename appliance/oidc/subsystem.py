"""Adds an issuer's access tokens to the appliance."""

from collections.abc import Sequence

from appliance.host import Host
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.oidc.resources import routes
from appliance.oidc.settings import OidcSettings
from appliance.web.guard import AccessTokenVerifier


class OidcSubsystem(Subsystem):
    """The issuer. `verifier`: None without one in the settings."""

    name = "oidc"
    sections = {"oidc": OidcSettings}

    def __init__(self, host: Host) -> None:
        self._settings = settings = host.section(OidcSettings)
        self.verifier: AccessTokenVerifier | None = None
        self.loops: Sequence[Loop] = ()
        if settings.issuer:
            # Only here: most appliances have no issuer, and don't load the library.
            from appliance.oidc.keys import IssuerKeys
            from appliance.oidc.loops import KeyRefresh
            from appliance.oidc.service import AccessTokens

            keys = IssuerKeys(settings.issuer, host.clock)
            self.verifier = AccessTokens(settings, keys)
            self.loops = (KeyRefresh(keys, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._settings)

    def start(self) -> None:
        for loop in self.loops:
            loop.nudge()
