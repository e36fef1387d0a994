"""The client's verbs for operators: pause and resume, and ceilings for a day."""

from appliance.sdk import models
from appliance.sdk.calls import HubCalls

PAUSES, CEILINGS = "/api/v1/pauses", "/api/v1/ceilings"


class BoundsVerbs(HubCalls):
    """Verbs that need `hub:admin`, except `list_pauses`."""

    def pause(
        self,
        principal: str | None = None,
        *,
        topic_id: str | None = None,
        everybody: bool = False,
        reason: str | None = None,
        seconds: int | None = None,
        key: str | None = None,
    ) -> models.ShownPause:
        """Pause a name, a topic's agents, or all agents. Without `seconds`, until `resume`."""
        body = {
            "principal": principal, "topic_id": topic_id, "all": everybody, "reason": reason,
            "seconds": seconds,
        }  # fmt: skip
        return self._post(PAUSES, body, key, models.PauseChanged).pause

    def resume(
        self,
        principal: str | None = None,
        *,
        topic_id: str | None = None,
        everybody: bool = False,
        key: str | None = None,
    ) -> models.ShownPause:
        """End a pause. After a ceiling, the name gets the ceiling for today once more. Raises
        NotFound."""
        body = {"principal": principal, "topic_id": topic_id, "all": everybody}
        return self._post(f"{PAUSES}/resume", body, key, models.PauseChanged).pause

    def list_pauses(self, after: int = 0, limit: int = 50) -> list[models.ShownPause]:
        """Return pauses, oldest first; `after` continues after a page's last id."""
        return self._get(PAUSES, list[models.ShownPause], "pauses", after=after, limit=limit)

    def set_ceiling(
        self,
        name: str,
        *,
        messages: int | None = None,
        turns: int | None = None,
        claims: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        key: str | None = None,
    ) -> models.Ceiling:
        """Set what a name may use on a UTC day, in place of its former ceiling."""
        body = {
            "name": name, "messages": messages, "turns": turns, "claims": claims,
            "tokens": tokens, "cost": cost,
        }  # fmt: skip
        return self._post(CEILINGS, body, key, models.CeilingShown).ceiling

    def remove_ceiling(self, name: str, *, key: str | None = None) -> None:
        """Remove a name's ceiling. Raises NotFound."""
        self._post(f"{CEILINGS}/remove", {"name": name}, key, models.CeilingRemoved)

    def list_ceilings(self, after: str = "", limit: int = 50) -> list[models.Ceiling]:
        """Return ceilings by name, with today's use."""
        return self._get(CEILINGS, list[models.Ceiling], "ceilings", after=after, limit=limit)
