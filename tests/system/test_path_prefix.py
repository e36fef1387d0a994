"""The appliance below a path of a real nginx, configured as the page prints it."""

import json
import re
from contextlib import contextmanager

import pytest

from tests.support.provider import provider
from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient
from tests.support.uipage import ui_page
from tests.system.test_proxy_pages import HUB, TLS_PAGE, example, free_port, get, nginx
from tests.ui.test_signing_in import leave

pytestmark = pytest.mark.slow
HOST = "127.0.0.1"
AGENT = """
[a2a]
url = "{root}"
[[a2a.agents]]
name = "linker"
description = "links"
skills = [{{ id = "link", description = "links pages" }}]
"""
PERSON = ".person"


def wrap(location):
    """Put the page's location into the page's server."""
    return re.sub(
        r"    location / {.*?^    }\n", location, example(TLS_PAGE, "nginx"), flags=re.M | re.S
    )


@contextmanager
def below_path(folder, location, settings=""):
    port = free_port()
    root = f"http://{HOST}:{port}/agentlip"
    text = HUB.replace("hub.example.org", HOST) + settings.format(root=root)
    with serve(folder / "hub", settings=text) as hub, nginx(wrap(location), folder, hub, port):
        yield hub, root


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    with provider(free_port()) as op:
        op.add("1", email="ada@example.com")
        (folder / "secret").write_text("secret")
        settings = AGENT + op.settings("{root}", folder / "secret")
        with below_path(folder, example(TLS_PAGE, "nginx", 1), settings) as (hub, root):
            yield hub, root, op


def ask(hub, path, peer_port=None, **headers):
    token = {"Authorization": f"Bearer {hub.token}"}
    return get(peer_port or hub.port, path, HOST, **token, **headers)


def port_of(root):
    return int(root.split(":")[2].split("/")[0])


def test_page_below_the_path_signs_in_and_follows_events(served):
    hub, root, _ = served
    with ui_page(hub, root=root) as page:
        page.is_live()
        channel_id, topic_id = hub.channel_with_topic("below")
        page.sees("below", ".sidebar")
        page.topic(channel_id, topic_id)
        page.fill(".compose textarea", "from below the path")
        page.click(".compose button.primary")
        page.sees("from below the path", ".list")
        cookies = page.tab.call("Network.getCookies", urls=[f"{root}/ui/"])["cookies"]
        assert [each["path"] for each in cookies] == ["/agentlip/"]
        assert all(each.startswith((root, "data:")) for each in page.tab.requests[1:])
        assert page.tab.problems == []


def test_invitation_made_below_the_path_leads_there(served):
    hub, root, _ = served
    with ui_page(hub, root=root) as page:
        page.go("#/operate?view=people")
        page.click(".bar button", "Invite")
        page.fill("dialog input", "grace")
        page.click("dialog .buttons button", "Make a link")
        page.sees("#invite=", "dialog pre")
        link = page.text("dialog pre")
    assert link.startswith(f"{root}/ui/#invite=")
    with ui_page(hub, root=root, signed_in=False) as guest:
        guest.tab.open(link)
        guest.sees("grace", PERSON)


def test_sign_in_with_a_provider_returns_below_the_path(served):
    hub, root, op = served
    with ui_page(hub, root=root, signed_in=False) as page:
        page.open()
        leave(page, int(op.url.rpartition(":")[2]), "1")
        page.sees("ada@example.com", PERSON)
        assert page.tab.evaluate("location.href").startswith(f"{root}/ui/")


def test_links_of_the_api_contain_the_path(served):
    hub, root, _ = served
    port = port_of(root)
    links = json.loads(ask(hub, "/agentlip/", port)[1])["links"]
    assert links["openapi"] == "/agentlip/api/v1/openapi.json"
    assert ask(hub, links["openapi"], port)[0] == 200
    document = json.loads(ask(hub, links["openapi"], port)[1])
    assert document["servers"] == [{"url": "/agentlip"}]
    card = json.loads(get(port, "/agentlip/.well-known/agent-card.json", HOST)[1])
    assert card["supportedInterfaces"][0]["url"] == f"{root}/a2a/linker"
    with SocketClient(port, hub.token, path="/agentlip/ws", headers=[("Host", HOST)]) as client:
        client.hello()


def test_page_without_a_slash_and_the_redirect_stay_below_the_path(served):
    hub, root, _ = served
    with ui_page(hub, root=root) as page:
        page.tab.open(f"{root}/ui")
        page.is_live()
    answer = hub.http.get("/", headers={"Accept": "text/html"})
    assert (answer.status, answer.headers["location"]) == (303, "ui/")


def test_proxy_without_upgrade_leaves_the_page_live(tmp_path):
    location = re.sub(r".*(Upgrade|Connection) \$.*\n", "", example(TLS_PAGE, "nginx", 1))
    with below_path(tmp_path, location) as (hub, root), ui_page(hub, root=root) as page:
        page.is_live()
        hub.channel("polled")
        page.sees("polled", ".sidebar")
        assert all("WebSocket" in each or "426" in each for each in page.tab.problems)


@pytest.mark.parametrize(
    "prefix",
    [
        "//evil.example",
        "https://evil.example",
        "/a/../b",
        '/a"><script>',
        "/a;Path=/",
        "/a, /b",
        "a",
    ],
)
def test_hostile_path_by_a_trusted_proxy_is_ignored(served, prefix):
    hub, _, _ = served
    forwarded = {"X-Forwarded-Prefix": prefix}
    assert json.loads(ask(hub, "/", **forwarded)[1])["links"]["ui"] == "/ui/"
    assert b'"url": "/"' in ask(hub, "/api/v1/openapi.json", **forwarded)[1]


def test_path_by_an_untrusted_peer_is_ignored(tmp_path):
    with serve(tmp_path) as hub:
        forwarded = {"X-Forwarded-Prefix": "/agentlip"}
        assert json.loads(ask(hub, "/", **forwarded)[1])["links"]["ui"] == "/ui/"
        opened = hub.http.post("/api/v1/sessions", {}, headers=forwarded)
        assert "Path=/;" in opened.headers["set-cookie"] + ";"
