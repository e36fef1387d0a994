"""HTTP routes of tokens. No token can have `tokens:admin` itself: only `admin` includes it."""

from typing import Any

import falcon

from appliance.kernel.route import Operation, Route
from appliance.tokens import wire
from appliance.tokens.service import Tokens
from appliance.web.media import reply

ADMIN = "tokens:admin"
NO_STORE = "no-store"  # secrets must not be cached


class TokensResource:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._tokens.list_all(req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateToken) -> None:
        resp.set_header("Cache-Control", NO_STORE)
        reply(resp, self._tokens.create(command), 201)

    def on_delete_item(self, req: Any, resp: falcon.Response, token_id: str) -> None:
        reply(resp, self._tokens.revoke(token_id))

    def on_post_rotation(
        self, req: Any, resp: falcon.Response, token_id: str, command: wire.RotateToken
    ) -> None:
        resp.set_header("Cache-Control", NO_STORE)
        reply(resp, self._tokens.rotate(token_id, command))


def routes(tokens: Tokens) -> list[Route]:
    resource = TokensResource(tokens)
    return [
        Route("/api/v1/tokens", resource, {
            "GET": Operation(ADMIN, reply=wire.TokenList, query=wire.TokensQuery,
                             summary="List all tokens without their secrets"),
            "POST": Operation(ADMIN, body=wire.CreateToken, reply=wire.TokenIssued, status=201,
                              summary="Issue a token; only this response contains its secret"),
        }),
        Route("/api/v1/tokens/{token_id}", resource, {
            "DELETE": Operation(ADMIN, reply=wire.TokenRevoked,
                                summary="Revoke a token and close its connections"),
        }, suffix="item"),
        Route("/api/v1/tokens/{token_id}/rotate", resource, {
            "POST": Operation(ADMIN, body=wire.RotateToken, reply=wire.TokenIssued,
                              summary="Replace a token's secret; the old one is valid for a while"),
        }, suffix="rotation"),
    ]  # fmt: skip
