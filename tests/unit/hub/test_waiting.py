"""Long polls of the hub end early with their client, its credential and the server."""

from types import SimpleNamespace

import pytest

from appliance.hub.waiting import read_until
from appliance.kernel import caller
from appliance.kernel.errors import Unauthenticated


@pytest.fixture
def env(env):
    env.hub.book.replace([("hash", env.alice)])
    return env


def wait(env, meanwhile):
    """How often a wait reads; `meanwhile` happens during the first read."""
    reads, subscription = [], env.feed.subscribe(1)

    def read():
        if not reads:
            meanwhile()
            subscription.wake()
        reads.append(1)

    read_until(lambda _: False, read, env.hub, subscription, 0.5, env.alice)
    return len(reads)


def test_wait_reads_again_after_a_wake_and_at_its_end(env):
    assert wait(env, lambda: None) == 3


def test_wait_ends_with_the_server(env):
    assert wait(env, env.feed.close) == 1


def test_wait_ends_with_its_client(env, monkeypatch):
    client = SimpleNamespace(
        authenticated=True, stay=lambda _wake: lambda: None, is_gone=lambda: False
    )
    kept = caller.current.set(client)
    reads = wait(env, lambda: monkeypatch.setattr(client, "is_gone", lambda: True))
    caller.current.reset(kept)
    assert reads == 1


def test_wait_is_refused_once_the_token_is_revoked(env):
    with pytest.raises(Unauthenticated):
        wait(env, lambda: env.hub.book.replace([]))
