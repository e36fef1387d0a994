"""Adds an issuer to the appliance: its access tokens, and people's sign-in."""

from collections.abc import Sequence

from appliance.host import Host
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.oidc.resources import routes
from appliance.oidc.settings import OidcSettings
from appliance.web.guard import AccessTokenVerifier
from appliance.web.sign_in import PeopleIssuer


class OidcSubsystem(Subsystem):
    """The issuer. `verifier` and `people`: None without their settings."""

    name = "oidc"
    sections = {"oidc": OidcSettings}

    def __init__(self, host: Host) -> None:
        self._settings = settings = host.section(OidcSettings)
        self.verifier: AccessTokenVerifier | None = None
        self.people: PeopleIssuer | None = None
        self.loops: Sequence[Loop] = ()
        if settings.issuer:
            # Only here: most appliances have no issuer, and don't load the library.
            from appliance.oidc.keys import IssuerKeys
            from appliance.oidc.loops import KeyRefresh
            from appliance.oidc.service import AccessTokens
            from appliance.oidc.sign_in import SignIn

            keys = IssuerKeys(settings.issuer, host.clock)
            if settings.resource:
                self.verifier = AccessTokens(settings, keys)
            if settings.client_id:
                self.people = SignIn(settings, keys, host.clock, host.log)
            self.loops = (KeyRefresh(keys, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._settings)

    def start(self) -> None:
        for loop in self.loops:
            loop.nudge()
