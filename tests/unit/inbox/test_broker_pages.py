"""Members of a mesh, page by page, of a broker that never ends its list."""

import pytest

from appliance.inbox import wire
from appliance.inbox.http_broker_client import HttpBrokerClient
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import SystemClock
from tests.support.fakehub import FakeHttp, http_hub
from tests.support.inbox import OWN
from tests.support.pages import pages_of

BOSS = Principal("server", "server", frozenset({ADMIN}))


@pytest.fixture
def inbox(new_inbox):
    return new_inbox(mesh="lab")


def member(number):
    return {"pubkey": f"{number:064x}", "name": f"m{number}", "state": "active"}


@pytest.mark.parametrize("rows", [[], [member(1)]])
def test_endless_lists_of_a_broker_are_cut(inbox, rows):
    fake = FakeHttp((200, {}, {"members": rows, "has_more": True, "next": "again"}))
    with http_hub(fake) as endpoint:
        inbox.service.broker_clients["lab"] = HttpBrokerClient(
            BrokerEndpoint("lab", f"http://127.0.0.1:{endpoint.port}"),
            OWN, SystemClock(), lambda _frame: None,
        )  # fmt: skip
        pages = pages_of(
            lambda after: inbox.service.peers(wire.MeshListQuery(after=after), BOSS), ""
        )
        assert pages[-1].next is None
        assert sum(len(page.peers) for page in pages) == 2 * len(rows)
        assert len(fake.requests) <= 2
