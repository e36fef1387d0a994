"""Defines HTTP routes for tokens and sign-in.

A token can't have `tokens:admin` itself: only `admin` includes that scope. Each caller manages its
own token's sessions; `admin` manages all.
"""

from functools import partial
from typing import Any

import falcon

from appliance.kernel.route import OPEN, Operation, Route
from appliance.tokens import wire
from appliance.tokens.people import SIGNED_IN_MS
from appliance.tokens.service import Tokens
from appliance.tokens.sessions import SESSION_MS, Sessions, who
from appliance.web.guard import cookie_name
from appliance.web.media import reply
from appliance.web.responders import Responders, reply_to_caller, reply_with
from appliance.web.sign_in import (
    CompleteSignIn,
    NoSignIn,
    NotInvited,
    PeopleIssuer,
    SignInBegun,
    SignInOffer,
    SignInRefused,
    TooManySignIns,
)

ADMIN = "tokens:admin"
SIGN_IN = "/api/v1/sign-in"
AdminAct = partial(Operation, audited=True, in_maintenance=True)


def routes(tokens: Tokens) -> list[Route]:
    return [
        Route("/api/v1/tokens", Responders(
            get=reply_with(tokens.list_all), post=reply_with(tokens.create, 201),
        ), {
            "GET": Operation(ADMIN, reply=wire.TokenList, query=wire.TokensQuery,
                             summary="List all tokens without their secrets"),
            "POST": AdminAct(ADMIN, body=wire.CreateToken, reply=wire.TokenIssued, status=201,
                             summary="Issue a token; only this response contains its secret"),
        }),
        Route("/api/v1/tokens/{token_id}", Responders(delete=reply_with(tokens.revoke)), {
            "DELETE": AdminAct(ADMIN, reply=wire.TokenRevoked,
                               summary="Revoke a token and close its connections"),
        }),
        Route("/api/v1/tokens/{token_id}/rotate", Responders(post=reply_with(tokens.rotate)), {
            "POST": AdminAct(ADMIN, body=wire.RotateToken, reply=wire.TokenIssued,
                             summary="Replace a token's secret; the old one is valid for a while"),
        }),
    ]  # fmt: skip


def _set_cookie(req: Any, resp: falcon.Response, secret: str, seconds: int) -> None:
    resp.set_cookie(
        cookie_name(req.env), secret, max_age=seconds, path=f"{req.context.prefix}/",
        http_only=True, secure=req.context.is_secure, same_site="Strict",
    )  # fmt: skip


def session_routes(sessions: Sessions) -> list[Route]:
    def sign_in(req: Any, resp: falcon.Response, command: wire.OpenSession) -> None:
        opened, secret = sessions.open(req.context.principal, command)
        _set_cookie(req, resp, secret, SESSION_MS // 1000)
        reply(resp, opened, 201)

    def end(req: Any, resp: falcon.Response, session_id: str = "") -> None:
        caller = req.context.principal
        ended = sessions.end(caller, session_id or caller.session)
        if ended.id == caller.session:
            _set_cookie(req, resp, "", -1)
        reply(resp, ended)

    return [
        Route("/api/v1/sessions", Responders(
            get=reply_to_caller(sessions.list_all), post=sign_in,
        ), {
            "GET": Operation(OPEN, reply=wire.SessionList, query=wire.SessionsQuery,
                             summary="List your token's browser sessions; `admin`: all"),
            "POST": AdminAct(OPEN, body=wire.OpenSession, reply=wire.SessionOpened, status=201,
                             credential=sessions.is_invited,
                             errors=(wire.InviteRefused, wire.CredentialRefused),
                             summary="Sign a browser in by a one-time link or a token; sets a "
                             "cookie"),
        }),
        Route("/api/v1/sessions/current", Responders(get=reply_to_caller(who), delete=end), {
            "GET": Operation(OPEN, reply=wire.Who, summary="The caller and its rights"),
            "DELETE": AdminAct(OPEN, reply=wire.SessionEnded, summary="Sign out"),
        }),
        Route("/api/v1/sessions/{session_id}", Responders(delete=end), {
            "DELETE": AdminAct(OPEN, reply=wire.SessionEnded,
                               summary="End a session and close its connections"),
        }),
        Route("/api/v1/invitations", Responders(post=reply_to_caller(sessions.invite, 201)), {
            "POST": AdminAct(OPEN, body=wire.CreateInvitation, reply=wire.Invitation, status=201,
                             errors=(wire.CredentialRefused,),
                             summary="Make a one-time link that signs a browser in"),
        }),
    ]  # fmt: skip


def sign_in_routes(sessions: Sessions, people: PeopleIssuer | None) -> list[Route]:
    """Return the routes for people's sign-in. `people`: None while only links and tokens sign
    people in."""

    def offer(_req: Any, resp: falcon.Response) -> None:
        reply(resp, SignInOffer(None if people is None else people.issuer))

    def begin(_req: Any, resp: falcon.Response) -> None:
        reply(resp, _require(people).begin())

    def complete(req: Any, resp: falcon.Response, command: CompleteSignIn) -> None:
        opened, secret = sessions.open_for(_require(people).complete(command))
        _set_cookie(req, resp, secret, SIGNED_IN_MS // 1000)
        reply(resp, opened, 201)

    return [
        Route(SIGN_IN, Responders(get=offer, post=begin), {
            "GET": Operation(OPEN, "Show who signs people in", reply=SignInOffer),
            "POST": Operation(OPEN, "Begin to sign a browser in with the issuer",
                              reply=SignInBegun, errors=(NoSignIn,), in_maintenance=True),
        }),
        Route(SIGN_IN + "/complete", Responders(post=complete), {
            "POST": AdminAct(OPEN, body=CompleteSignIn, reply=wire.SignedIn, status=201,
                             credential=None if people is None else people.is_pending,
                             errors=(NoSignIn, SignInRefused, NotInvited, TooManySignIns,
                                     wire.PersonRevoked, wire.TokenNameTaken),
                             summary="Sign a browser in that the issuer sent back; sets a cookie"),
        }),
    ]  # fmt: skip


def _require(people: PeopleIssuer | None) -> PeopleIssuer:
    if people is None:
        raise NoSignIn
    return people
