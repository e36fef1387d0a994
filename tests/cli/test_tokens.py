"""`agentlip token`: links for colleagues, and the browsers that are signed in."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub, serve

pytestmark = pytest.mark.slow

CREATE = ("token", "create", "--scope", "hub:read", "--name")


def sign_in(hub: ServedHub, link: str) -> int:
    secret = link.partition("#invite=")[2]
    return hub.connect(None).post("/api/v1/sessions", {"invite": secret}).status


def test_invited_colleague_gets_a_link_that_works_once(tmp_path: Path) -> None:
    with serve(tmp_path) as hub:
        made = agentlip(*CREATE, "grace", "--invite", "--json", cwd=tmp_path).json
        assert sorted(made) == ["expires_at", "link", "secret", "token"]
        assert made["link"].startswith(f"{hub.url}/ui/#invite=")
        assert (sign_in(hub, made["link"]), sign_in(hub, made["link"])) == (201, 401)
        as_text = agentlip(*CREATE, "ben", "--invite", cwd=tmp_path)
        assert sign_in(hub, as_text.out.strip()) == 201
        assert "once, until" in as_text.err
        assert made["secret"] != made["link"].partition("=")[2]


def test_no_token_is_made_for_a_link_that_nobody_can_open(tmp_path: Path) -> None:
    agentlip("init", cwd=tmp_path)
    assert agentlip(*CREATE, "grace", "--invite", cwd=tmp_path).code == 3
    assert "grace" not in agentlip("token", "list", cwd=tmp_path).out


def test_infinite_days_are_refused(tmp_path: Path) -> None:
    agentlip("init", cwd=tmp_path)
    refused = agentlip(*CREATE, "grace", "--expires", "inf", cwd=tmp_path)
    assert (refused.code, "must be a number of days" in refused.err) == (1, True)


@pytest.mark.parametrize("runs", [True, False])
def test_token_is_rotated_and_revoked_by_its_name(tmp_path: Path, runs: bool) -> None:
    agentlip("init", cwd=tmp_path)
    with serve(tmp_path) if runs else nullcontext():
        for _ in range(2):  # the name of a revoked token is free again
            id_ = agentlip(*CREATE, "ci", "--json", cwd=tmp_path).json["token"]["id"]
            rotated = agentlip("token", "rotate", "ci", "--json", cwd=tmp_path).json
            assert rotated["token"]["id"] == id_
            assert id_ in agentlip("token", "revoke", "ci", cwd=tmp_path).out
        missing = agentlip("token", "revoke", "ci", cwd=tmp_path)
        assert (missing.code, "agentlip token list" in missing.err) == (1, True)
