"""Principals, scopes, and tokens known by their hash."""

import sqlite3

import pytest

from appliance.kernel.auth import (
    ANONYMOUS,
    TokenBook,
    hash_token,
    principal_of,
    remember_server_token,
    valid_tokens,
)
from appliance.kernel.ids import secret_token
from appliance.workspace.migration import load


@pytest.fixture
def auth():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in load("auth"):
        connection.executescript(migration.sql)
    yield connection
    connection.close()


def test_a_token_has_at_least_128_bits_and_is_never_the_same():
    tokens = {secret_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(bytes.fromhex(token)) * 8 >= 128 for token in tokens)


def test_token_book_finds_tokens_until_it_is_replaced():
    book = TokenBook([(hash_token("one"), ANONYMOUS)])
    assert book.find("one") is ANONYMOUS
    assert book.find("other") is None
    assert book.find("\udc80") is None
    book.replace([])
    assert book.find("one") is None


def test_server_token_is_hashed_and_replaced_by_new_one(auth):
    for token in ("first", "second"):
        remember_server_token(auth, token, 1)
    book = TokenBook(valid_tokens(auth, 2))
    assert book.find("first") is None
    principal = book.find("second")
    assert principal is not None
    assert principal.allows("hub:post")
    assert "second" not in str(auth.execute("SELECT * FROM tokens").fetchall())


@pytest.mark.parametrize(
    ("scopes", "read", "post"),
    [
        (["hub:read"], None, None),
        (["hub:read@a"], {"a"}, None),
        (["hub:read@a", "hub:read@b"], {"a", "b"}, None),
        (["hub:read", "hub:read@a"], None, None),
        (["admin", "hub:read@a"], None, None),
        (["hub:read", "hub:post@a"], None, {"a"}),
    ],
)
def test_scopes_with_channels(scopes, read, post):
    principal = principal_of("t", "t", scopes)
    assert principal.channels_for("hub:read") == read
    assert principal.channels_for("hub:post") == post
    assert all(principal.allows(scope.partition("@")[0]) for scope in scopes)
    assert (principal.channels is None) == (read is None and post is None)
