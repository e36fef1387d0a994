"""Changes tokens in the database file while no hub runs, under the writer lock."""

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from appliance.audit.log.commands import CURRENT
from appliance.kernel.auth import OWNER, TokenBook
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.sdk.http import NO_HEADERS, HubClient
from appliance.tokens import wire
from appliance.tokens.service import Tokens
from appliance.tokens.sessions import Sessions
from appliance.workspace.datadir import DataDir
from appliance.workspace.stopped_store import stopped_store

T = TypeVar("T")


class StoppedHub(HubClient):
    """A client that handles token and session requests on the file of a workspace that no hub
    serves."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir

    def _insist(
        self,
        method: str,
        path: str,
        body: bytes | None,
        key: str | None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Any:
        """Return the reply that the hub would give. Raises HubRunning and SchemaTooOld."""
        path, _, query = path.partition("?")
        fields = dict(parse_qsl(query)) if body is None else msgspec.json.decode(body)
        clock = SystemClock()
        CURRENT.get().begin()
        with stopped_store(self._datadir, "auth", clock) as store:
            tokens = Tokens(store, TokenBook(), self._datadir, clock)
            sessions = Sessions(store, tokens, clock)
            reply: Any
            match method, *map(unquote, path.removeprefix("/api/v1/").split("/")):
                case "GET", "tokens":
                    reply = tokens.list_all(_convert(fields, wire.TokensQuery))
                case "GET", "sessions":
                    reply = sessions.list_all(_convert(fields, wire.SessionsQuery), OWNER)
                case "POST", "tokens":
                    reply = tokens.create(_convert(fields, wire.CreateToken))
                case "POST", "tokens", token_id, "rotate":
                    reply = tokens.rotate(token_id, _convert(fields, wire.RotateToken))
                case "DELETE", "tokens", token_id:
                    reply = tokens.revoke(token_id)
                case "DELETE", "sessions", session_id:
                    reply = sessions.end(OWNER, session_id)
        return msgspec.to_builtins(reply)


def _convert(fields: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"invalid input: {error}") from None
