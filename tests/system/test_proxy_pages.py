"""Reverse proxies on the machine of the appliance: nginx's defaults, and our pages'."""

import http.client
import re
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient
from tests.support.until import until
from tests.system.monitoring.prometheus import program

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs/how-to"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
PLAIN = """
server {
    listen 127.0.0.1:443;
    location / { proxy_pass http://127.0.0.1:7464; }
}
"""
ALONE = "daemon off; pid {0}/pid; error_log stderr; events {{}} http {{ access_log off;\n"
TEMPORARY = "".join(
    f"{kind}_temp_path {{0}}/{kind};\n"
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)
CLOSED = ("/api/v1/channels", "/api/v1/asks", "/api/v1/events", "/metrics", "/", "/v1/stats")


def example(page, language, index=0):
    return [b for kind, b in FENCE.findall((DOCS / page).read_text()) if kind == language][index]


def settings_of(page):
    """The settings of the page for its proxy; those for a relay with its role."""
    blocks = [b for kind, b in FENCE.findall((DOCS / page).read_text()) if kind == "toml"]
    chosen = [b for b in blocks if "trusted_proxies" in b or "relay = true\noutbox" in b]
    return "\n".join(chosen)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextmanager
def running(command, port, **options):
    with subprocess.Popen(command, stderr=subprocess.PIPE, **options) as process:
        try:
            until(lambda: is_open(port) or process.poll() is not None, 30, "the proxy listens")
            assert process.poll() is None, process.stderr.read().decode()
            yield port
        finally:
            process.terminate()


def is_open(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def nginx(server, folder, hub, port=0):
    """The server of a page, with a free port for 443 and without certificates."""
    binary = program("nginx")
    port = port or free_port()
    server = re.sub(r"^ *ssl_.*\n", "", server, flags=re.M)
    server = re.sub(r"listen \S*443( ssl)?", f"listen 127.0.0.1:{port}", server)
    text = (ALONE + TEMPORARY).format(folder) + f"{server.replace('7464', str(hub.port))} }}"
    (folder / "nginx.conf").write_text(text)
    folder.chmod(0o755)
    with running([binary, "-p", folder, "-c", folder / "nginx.conf"], port):
        yield port


@contextmanager
def caddy(site, folder, hub):
    binary = program("caddy")
    port = free_port()
    site = re.sub(r"^(\w+\.example\.org) {", rf"http://\1:{port} {{", site, flags=re.M)
    text = "{\n  admin off\n}\n" + site.replace("7464", str(hub.port))
    (folder / "Caddyfile").write_text(text)
    command = [binary, "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]
    with running(command, port, env={"HOME": str(folder), "PATH": "/usr/bin"}):
        yield port


def get(port, path, host="relay.example.org", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Host": host, **headers})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["hub.example.org", "localhost", "127.0.0.1:7464"])
def test_nginx_with_default_settings_publishes_nothing(tmp_path, host):
    with serve(tmp_path, settings="[roles]\nrelay = true\n") as hub:
        with nginx(PLAIN, tmp_path, hub) as port:
            assert {path: get(port, path, host)[0] for path in CLOSED} == dict.fromkeys(CLOSED, 401)
            assert get(port, "/-/healthy", host)[0] == 200
            assert get(port, "/registry/agents", host)[0] == 200
            token = {"Authorization": f"Bearer {hub.token}"}
            assert get(port, "/api/v1/channels", host, **token)[0] == 200
            status, body = get(port, "/ws", host, **token)
            assert (status, b"proxy must pass Upgrade" in body) == (426, True)
        assert hub.connect(None).get("/api/v1/channels").status == 200


@pytest.mark.parametrize(("proxy", "language"), [(nginx, "nginx"), (caddy, "caddy")])
def test_examples_of_the_relay_page_publish_the_relay_alone(tmp_path, proxy, language):
    with serve(tmp_path, settings=settings_of("relay.md")) as hub:
        with proxy(example("relay.md", language), tmp_path, hub) as port:
            for path in ("/registry/agents", "/admin/keys", "/relay/inbox/x"):
                assert get(port, path)[0] in (200, 410), path
            assert b"agent's signature" in get(port, "/contacts")[1]
            for path in (*CLOSED, "/-/ready", "/registryx", "/v1/outbox"):
                assert get(port, path)[0] == 404, path
            # A stranger can't name an address of its own for the limits of registrations.
            code = {"X-Forwarded-For": "198.51.100.1"}
            assert get(port, "/registry/agents", **code)[0] == 200
        assert hub.connect(None).get("/api/v1/channels").body["code"] == "ROLE_OFF"
        assert hub.connect(None).get("/metrics").status == 401


HUB = '[http]\ntrusted_proxies = ["127.0.0.1"]\nallowed_hosts = ["hub.example.org"]\n'
TLS_PAGE = "containers-and-tls.md"


def passes_all(port, hub, host, **forwarded):
    """Requests, a socket and a stream: with a token only."""
    closed = {path: get(port, path, host, **forwarded)[0] for path in CLOSED}
    assert closed == dict.fromkeys(CLOSED, 401)
    token = {"Authorization": f"Bearer {hub.token}", **forwarded}
    assert get(port, "/api/v1/channels", host, **token)[0] == 200
    headers = [("Host", host), *forwarded.items()]
    with SocketClient(port, hub.token, headers=headers) as client:
        client.hello()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Host": host, "Accept": "text/event-stream", **token}
    connection.request("GET", "/api/v1/events/stream?after=0", headers=headers)
    reply = connection.getresponse()
    assert reply.status == 200
    hub.channel("streamed")
    assert any(b"channel.created" in line for line in iter(reply.readline, b"")), "not buffered"
    connection.close()


def test_settings_of_the_page_are_those_that_are_tested():
    page = (DOCS / TLS_PAGE).read_text()
    assert all(line in page for line in HUB.splitlines())


@pytest.mark.parametrize(("proxy", "language"), [(nginx, "nginx"), (caddy, "caddy")])
def test_examples_for_a_hub_pass_sockets_and_streams_with_a_token(tmp_path, proxy, language):
    text = example(TLS_PAGE, language)
    with serve(tmp_path, settings=HUB) as hub, proxy(text, tmp_path, hub) as port:
        passes_all(port, hub, "hub.example.org")


@pytest.mark.parametrize("number", [0, 1], ids=["Traefik", "Cloudflare"])
def test_requests_as_traefik_and_cloudflare_send_them_pass_with_a_token(tmp_path, number):
    """By their documentation: the public name, and these headers."""
    texts = [body for kind, body in FENCE.findall((DOCS / TLS_PAGE).read_text()) if kind == "yaml"]
    assert "http://127.0.0.1:7464" in str(yaml.safe_load(texts[number]))
    address = "203.0.113.7"
    forwarded = [
        {"X-Forwarded-For": address, "X-Real-Ip": address, "X-Forwarded-Host": "hub.example.org",
         "X-Forwarded-Port": "443", "X-Forwarded-Proto": "https", "X-Forwarded-Server": "edge"},
        {"X-Forwarded-For": address, "Cf-Connecting-Ip": address, "X-Forwarded-Proto": "https",
         "Cf-Ray": "8f1e", "Cf-Visitor": '{"scheme":"https"}', "Cdn-Loop": "cloudflare"},
    ]  # fmt: skip
    with serve(tmp_path, settings=HUB) as hub:
        passes_all(hub.port, hub, "hub.example.org", **forwarded[number])
        assert get(hub.port, "/-/healthy", "other.example.org")[0] == 421


def test_metrics_of_a_pod_are_read_by_its_address(tmp_path):
    flags = ("--host", "0.0.0.0", "--unsafe-network")
    with serve(tmp_path, *flags, settings='[http]\nallowed_hosts = ["hub.example.org"]\n') as hub:
        token = {"Authorization": f"Bearer {hub.token}"}
        assert get(hub.port, "/metrics", "10.1.2.3:7464", **token)[0] == 200
        assert get(hub.port, "/metrics", "10.1.2.3:7464")[0] == 401
        assert get(hub.port, "/metrics", "other.example.org", **token)[0] == 421
