"""HTTP routes of tokens and of sign-in.

No token can have `tokens:admin` itself: only `admin` includes it. Each caller manages the sessions
of its own token; `admin` manages all.
"""

from typing import Any

import falcon

from appliance.kernel.route import OPEN, Operation, Route
from appliance.tokens import wire
from appliance.tokens.service import Tokens
from appliance.tokens.sessions import CURRENT, SESSION_MS, Sessions, who
from appliance.web.guard import cookie_name
from appliance.web.media import reply
from appliance.web.responders import Responder, Responders, reply_to_caller, reply_with

ADMIN = "tokens:admin"
NO_STORE = "no-store"  # secrets must not be cached


def _keep_secret(respond: Responder) -> Responder:
    """The same reply, which must not be cached."""

    def respond_once(req: Any, resp: falcon.Response, **fields: Any) -> None:
        resp.set_header("Cache-Control", NO_STORE)
        respond(req, resp, **fields)

    return respond_once


def routes(tokens: Tokens) -> list[Route]:
    return [
        Route("/api/v1/tokens", Responders(
            get=reply_with(tokens.list_all), post=_keep_secret(reply_with(tokens.create, 201)),
        ), {
            "GET": Operation(ADMIN, reply=wire.TokenList, query=wire.TokensQuery,
                             summary="List all tokens without their secrets"),
            "POST": Operation(ADMIN, body=wire.CreateToken, reply=wire.TokenIssued, status=201,
                              summary="Issue a token; only this response contains its secret",
                              audited=True),
        }),
        Route("/api/v1/tokens/{token_id}", Responders(delete=reply_with(tokens.revoke)), {
            "DELETE": Operation(ADMIN, reply=wire.TokenRevoked,
                                summary="Revoke a token and close its connections", audited=True),
        }),
        Route("/api/v1/tokens/{token_id}/rotate", Responders(
            post=_keep_secret(reply_with(tokens.rotate)),
        ), {
            "POST": Operation(ADMIN, body=wire.RotateToken, reply=wire.TokenIssued,
                              summary="Replace a token's secret; the old one is valid for a while",
                              audited=True),
        }),
    ]  # fmt: skip


class SessionsResource:
    """Sign-in and sign-out, which set the cookie."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.on_get = reply_to_caller(sessions.list_all)
        self.on_get_current = _keep_secret(reply_to_caller(who))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.OpenSession) -> None:
        opened, secret = self._sessions.open(req.context.principal, command)
        _set_cookie(req, resp, secret, SESSION_MS // 1000)
        reply(resp, opened, 201)

    def on_delete_item(self, req: Any, resp: falcon.Response, session_id: str) -> None:
        ended = self._sessions.end(req.context.principal, session_id)
        if ended.id == req.context.principal.session:
            _set_cookie(req, resp, "", -1)
        reply(resp, ended)

    def on_delete_current(self, req: Any, resp: falcon.Response) -> None:
        self.on_delete_item(req, resp, CURRENT)


def _set_cookie(req: Any, resp: falcon.Response, secret: str, seconds: int) -> None:
    resp.set_header("Cache-Control", NO_STORE)
    resp.set_cookie(
        cookie_name(req.env), secret, max_age=seconds, path="/", http_only=True,
        secure=req.context.is_secure, same_site="Strict",
    )  # fmt: skip


def session_routes(sessions: Sessions) -> list[Route]:
    resource = SessionsResource(sessions)
    return [
        Route("/api/v1/sessions", resource, {
            "GET": Operation(OPEN, reply=wire.SessionList, query=wire.SessionsQuery,
                             summary="List the sessions of browsers of your token; `admin`: all"),
            "POST": Operation(OPEN, body=wire.OpenSession, reply=wire.Who, status=201,
                              errors=(wire.InviteRefused, wire.CredentialRefused),
                              summary="Sign a browser in by a one-time link or a token; sets a "
                              "cookie", audited=True),
        }),
        Route("/api/v1/sessions/current", resource, {
            "GET": Operation(OPEN, reply=wire.Who, summary="The caller and its rights"),
            "DELETE": Operation(OPEN, reply=wire.SessionEnded, summary="Sign out", audited=True),
        }, suffix="current"),
        Route("/api/v1/sessions/{session_id}", resource, {
            "DELETE": Operation(OPEN, reply=wire.SessionEnded,
                                summary="End a session and close its connections", audited=True),
        }, suffix="item"),
        Route("/api/v1/invitations", Responders(
            post=_keep_secret(reply_to_caller(sessions.invite, 201)),
        ), {
            "POST": Operation(OPEN, body=wire.CreateInvitation, reply=wire.Invitation, status=201,
                              errors=(wire.CredentialRefused,),
                              summary="Make a one-time link that signs a browser in", audited=True),
        }),
    ]  # fmt: skip
