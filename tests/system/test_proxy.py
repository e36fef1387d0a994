"""The TLS example of ops/compose.yaml, with the real proxy, and what it lets through."""

import http.client
import json
import re
import socket
import ssl
import subprocess
from pathlib import Path

import docker
import pytest
import yaml
from docker.types import EndpointConfig
from testcontainers.core.container import DockerContainer
from websockets.sync.client import connect

from tests.support.until import until
from tests.system.box import PORT, bearer, message
from tests.system.checkout import CHECKOUT, LABELS, SUBNET

pytestmark = [pytest.mark.container, pytest.mark.slow]
OPS = Path(__file__).parents[2] / "ops"
HOST = "appliance.localhost"
DOCKERFILE = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends caddy
ENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
"""


@pytest.fixture(scope="module")
def compose():
    """The compose file as `docker compose` would read it, on a network of the test's own."""
    text = (OPS / "compose.yaml").read_text()
    text = text.replace("${AGENTLIP_HOST:-localhost}", HOST).replace("172.30.78.", f"{SUBNET}.")
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def proxy_image(engine):
    base = subprocess.check_output([OPS / "engine"], text=True).strip()
    tag = f"agentlip-proxy:test-{CHECKOUT}"
    command = ["docker", "build", "--quiet", "--network", "host", "--tag", tag]
    subprocess.run(
        [*command, "--build-arg", f"BASE_IMAGE={base}", "-"],
        input=DOCKERFILE,
        text=True,
        check=True,
        capture_output=True,
    )
    return tag


@pytest.fixture
def network(engine, compose):
    pools = [docker.types.IPAMPool(**compose["networks"]["front"]["ipam"]["config"][0])]
    ipam = docker.types.IPAMConfig(pool_configs=pools)
    made = engine.networks.create(f"agentlip-test-{CHECKOUT}", ipam=ipam, labels=LABELS)
    yield made
    made.remove()


def network_of(network, service):
    """Container settings that put it where the compose file puts the service."""
    address = service["networks"]["front"]["ipv4_address"]
    config = EndpointConfig("1.41", ipv4_address=address)
    return {"network": network.name, "networking_config": {network.name: config}}


@pytest.fixture
def appliance(network, box, volume, compose):
    service = compose["services"]["appliance"]
    return box(volume(), env=service["environment"], **network_of(network, service)).start()


@pytest.fixture
def proxy(network, appliance, compose, proxy_image):
    """The port on the loopback, and the TLS context that trusts the proxy's authority."""
    service = compose["services"]["tls"]
    upstream = compose["services"]["appliance"]["networks"]["front"]["ipv4_address"]
    environment = service["environment"] | {"AGENTLIP_UPSTREAM": f"{upstream}:{PORT}"}
    container = (
        DockerContainer(proxy_image)
        .with_envs(**environment)
        .with_volume_mapping(OPS / "tls/Caddyfile", "/etc/caddy/Caddyfile")
        .with_tmpfs_mount("/data")
        .with_tmpfs_mount("/config")
        .with_kwargs(
            read_only=service["read_only"],
            cap_drop=service["cap_drop"],
            cap_add=service["cap_add"],
            security_opt=service["security_opt"],
            labels=LABELS,
            **network_of(network, service),
        )
    )
    container.ports = {"443/tcp": ("127.0.0.1",)}
    with container:
        root = "/data/caddy/pki/authorities/local/root.crt"
        result = until(
            lambda: (r := container.exec(["cat", root])).exit_code == 0 and r.output, 20, root
        )
        context = ssl.create_default_context(cadata=result.decode())
        port = int(container.get_exposed_port(443))
        until(lambda: get(port, context, "/health")[0] == 200, 20, "an answer through TLS")
        yield port, context


def dial(port):
    return socket.create_connection(("127.0.0.1", port), 5)


def get(port, context, path, headers=None):
    connection = http.client.HTTPSConnection(HOST, port, timeout=5)
    try:
        connection.sock = context.wrap_socket(dial(port), server_hostname=HOST)
        connection.request("GET", path, headers={"Host": HOST, **(headers or {})})
        reply = connection.getresponse()
        return reply.status, reply.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def plain_tokens(port, context, token):
    """The tokens that the appliance received over plain HTTP."""
    page = get(port, context, "/metrics", bearer(token))[1].decode()
    return float(re.search(r"^agentlip_http_plain_tokens_total (\S+)", page, re.MULTILINE)[1])


def test_requests_and_sockets_pass_and_no_token_goes_in_the_clear(proxy, appliance):
    port, context = proxy
    token = appliance.token
    # Through the proxy a caller is a stranger: reading needs the token.
    assert get(port, context, "/api/v1/channels")[0] == 401
    assert get(port, context, "/api/v1/channels", bearer(token))[0] == 200

    address = f"wss://{HOST}/ws?token={token}"
    with connect(address, sock=dial(port), ssl=context, server_hostname=HOST) as ws:
        ws.send(json.dumps({"type": "hello", "after_event_id": 0}))
        assert json.loads(ws.recv(timeout=5))["type"] == "hello_ok"
        assert plain_tokens(port, context, token) == 0

        # Past the proxy, over the published port, the same token is counted.
        topic = appliance.topic()
        assert appliance.request("POST", "/api/v1/messages", message(topic, "hi"))[0] == 201
        names = [json.loads(ws.recv(timeout=5))["name"] for _ in range(3)]
    assert names == ["channel.created", "topic.created", "message.created"]
    until(lambda: plain_tokens(port, context, token) > 0, 30, "it is in the metrics")
    assert token not in appliance.output()


def test_scrape_token_opens_metrics_only(box, volume):
    store = volume()
    first = box(store).start()
    first.sh("umask 077; echo a-token-for-the-scraper-alone >/data/scrape-token")
    first.remove()

    appliance = box(store, env={"AGENTLIP_AUTH__SCRAPE_TOKEN_FILE": "/data/scrape-token"}).start()

    def status(path, headers):
        connection = http.client.HTTPConnection("127.0.0.1", appliance.port, timeout=5)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse().status
        connection.close()
        return answer

    scraper = bearer("a-token-for-the-scraper-alone")
    assert status("/metrics", {}) == 401
    assert status("/metrics", scraper) == 200
    assert status("/api/v1/channels", scraper) == 403
