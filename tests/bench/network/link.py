"""Two appliances with one TLS link: sends to the broker of the other one, and direct messages.

`home` sends. `away` has the broker of a mesh, is a member of it, and keeps the agent bert. A proxy
in front of `away` ends TLS for both. A third appliance is the relay.
"""

import asyncio
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.sdk.network.folder import AgentConfig, AgentFolder
from tests.bench.client import NOW, Http
from tests.bench.network.agents import key, make_relay
from tests.bench.outbox.pair import MESH, End, wait_for_link
from tests.bench.served import Served
from tests.bench.target import RowFailed

MESSAGE_SECONDS_MAX = 30.0
POLL_SECONDS = 0.0005
ROLES = "[roles]\nnetwork = true\n"
HOME = f"""{ROLES}
[outbox]
mesh = "{MESH}"

[inbox]
mesh = "{MESH}"

[[outbox.brokers]]
mesh = "{MESH}"
url = "https://127.0.0.1:{{port}}"
ca_file = "{{ca}}"
"""
AWAY = f"""{ROLES}
[inbox]
mesh = "{MESH}"
[outbox]
mesh = "{MESH}"
[broker]
rate_per_second = 1000000
"""


def measure_link(folder: Path, count: int) -> dict[str, list[float]]:
    """Seconds of each message, by turns."""
    for name in ("home", "away"):
        (folder / name).mkdir(parents=True)
    certificate, private = make_certificate(folder)
    (folder / "away" / "agentlip.toml").write_text(AWAY)
    with (
        Served(folder / "away") as elsewhere,
        tls_proxy(certificate, private, elsewhere.target.port) as port,
    ):
        endpoint = f"https://127.0.0.1:{port}/network/inbox"
        make_relay(folder / "relay", {"anna": endpoint, "bert": endpoint}, [("anna", "bert")])
        toml = HOME.format(port=port, ca=certificate)
        (folder / "home" / "agentlip.toml").write_text(toml)
        os.environ["SSL_CERT_FILE"] = str(certificate)
        with Served(folder / "relay") as relay, Served(folder / "home") as at_home:
            home, away = End(at_home.target), End(elsewhere.target)
            url = f"http://127.0.0.1:{relay.target.port}"
            for name, end in (("anna", home), ("bert", away)):
                path = end.target.database.with_name("network") / name
                AgentFolder.create(path, AgentConfig(name, url, endpoint, True), key(name))
            http = Http(away.target)
            http.call("POST", "/broker/v1/meshes", {"slug": MESH})
            for name, end in (("home", home), ("away", away)):
                member = {"pubkey": end.key, "name": name}
                http.call("POST", f"/broker/v1/meshes/{MESH}/members", member)
            http.close()
            wait_for_link(home)
            wait_for_link(away)
            return _measure(home, away, count)


def _measure(home: End, away: End, count: int) -> dict[str, list[float]]:
    http = Http(home.target)
    to = {"direct": "network:bert", "mesh": f"dm:{away.key}"}
    for kind in to:  # each contact, key and connection is made once
        _send(http, away, to[kind], MESSAGE_SECONDS_MAX)
    seconds: dict[str, list[float]] = {kind: [] for kind in to}
    for _ in range(count):
        for kind in to:
            seconds[kind].append(_send(http, away, to[kind], MESSAGE_SECONDS_MAX))
    http.close()
    return seconds


def _send(http: Http, away: End, to: str, seconds_max: float) -> float:
    newest, began = away.newest(), NOW()
    http.call("POST", "/v1/send", {"to": to, "message": "x" * 200})
    while away.newest() == newest:
        if NOW() - began > seconds_max:
            raise RowFailed(f"a message to {to} did not arrive")
        time.sleep(POLL_SECONDS)
    return NOW() - began


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself."""
    certificate, private = folder / "link.crt", folder / "link.key"
    options = ["-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", private, "-out", certificate]
    subprocess.run(["openssl", "req", *options, *name, *files], check=True, capture_output=True)
    return certificate, private


@contextmanager
def tls_proxy(certificate: Path, private: Path, port: int) -> Iterator[int]:
    """Its port; it forwards to `port` of this machine, without TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, private)
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer), return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
