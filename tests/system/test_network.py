"""Two appliances and a relay in three containers, and all that passes between them, recorded."""

import base64
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from tests.support.until import until
from tests.system.checkout import LABELS

pytestmark = [pytest.mark.container, pytest.mark.slow]
PORTS = {"relay": 7464, "anna": 7465, "bert": 7466}
TEXTS = {"anna": "the b\u00fcild is gr\u00e9en, says anna", "bert": "deploy at noon, says bert"}
GREETING = "a greeting that the relay stores"
# Agents and relay know each other by these ports; command lines use the appliances' own ones.
RECORDED = 1000
RECORDER = f"""
import asyncio

async def copy(reader, writer, file):
    while data := await reader.read(65536):
        file.write(data)
        file.flush()
        writer.write(data)
        await writer.drain()
    writer.close()

async def main():
    file = open("/tmp/traffic", "ab")
    async def serve(port, reader, writer):
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, to_writer, file), copy(to_reader, writer, file),
                             return_exceptions=True)
    for port in {sorted(PORTS.values())}:
        await asyncio.start_server(lambda *pair, port=port: serve(port, *pair),
                                   "127.0.0.1", port + {RECORDED})
    print("recording", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Machine:
    """One container. Its workspace is on a volume, its network that of the recorder."""

    def __init__(self, engine: docker.DockerClient, image: str, volume: str, **more: Any) -> None:
        self._engine, self._image = engine, image
        self._options = {
            "volumes": {volume: {"bind": "/data"}}, "tmpfs": {"/tmp": ""}, "read_only": True,
            "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "labels": LABELS,
            **more,
        }  # fmt: skip
        self.container: Any = None

    def run(self, *words: str) -> bytes:
        """A command before the appliance starts."""
        done: bytes = self._engine.containers.run(
            self._image, list(words), remove=True, **self._options
        )
        return done

    def start(self, *words: str, **more: Any) -> None:
        self.container = self._engine.containers.run(
            self._image, list(words), detach=True, **{**self._options, **more}
        )

    def sh(self, *words: str) -> str:
        code, output = self.container.exec_run(list(words))
        assert code == 0, output.decode()
        return str(output.decode())

    def json(self, *words: str) -> Any:
        return json.loads(self.sh("agentlip", *words, "--json"))

    def files(self, path: str) -> bytes:
        """The contents of all files below a path."""
        stream, _ = self.container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            members = [archive.extractfile(member) for member in archive]
            return b"".join(member.read() for member in members if member is not None)

    def remove(self) -> None:
        if self.container is not None:
            self.container.remove(force=True)


@pytest.fixture
def recorder(engine: docker.DockerClient, image: str, volume: Callable[..., str]) -> Iterator[Any]:
    machine = Machine(engine, image, volume())
    machine.start("-u", "-c", RECORDER, entrypoint=["python3"])
    until(lambda: b"recording" in machine.container.logs(), what="the recorder")
    yield machine
    machine.remove()


@pytest.fixture
def machines(
    engine: docker.DockerClient, image: str, volume: Callable[..., str], recorder: Machine
) -> Iterator[dict[str, Machine]]:
    made = {}
    for name, port in PORTS.items():
        environment = (
            {"AGENTLIP_ROLES__RELAY": "true", "AGENTLIP_RELAY__OPTIONS": '["loopback-endpoints"]'}
            if name == "relay"
            else {"AGENTLIP_ROLES__NETWORK": "true"}
        )
        shared = f"container:{recorder.container.id}"
        made[name] = Machine(engine, image, volume(), network_mode=shared, environment=environment)
        made[name].run("agentlip", "init")
        if name == "relay":
            made[name].run("agentlip", "relay", "admins", "add", "ada", "--new-key", "ada.key")
        made[name].start("up", "--port", str(port))
    for machine in made.values():
        until(lambda machine=machine: is_ready(machine), what="the appliance is ready")
    yield made
    for machine in made.values():
        machine.remove()


def is_ready(machine: Machine) -> bool:
    return bool(machine.container.exec_run(["agentlipd", "status"])[0] == 0)


def register(machines: dict[str, Machine], name: str) -> None:
    relay, machine = machines["relay"], machines[name]
    url = f"http://127.0.0.1:{PORTS[name] + RECORDED}/network/inbox"
    relay_url = f"http://127.0.0.1:{PORTS['relay'] + RECORDED}"
    network = ("agentlip", "network")
    machine.sh(*network, "init", name, "--relay", relay_url, "--endpoint", url, "--loopback")
    machine.sh(*network, "register", f"{name}@example.org")
    code = relay.sh("tail", "-c", "200", ".agentlip/relay-codes.txt").rpartition(" is ")[2][:6]
    machine.sh(*network, "register", f"{name}@example.org", "--code", code)
    relay.sh("agentlip", "relay", "approve", name, "--as", "ada", "--key-file", "ada.key")


def spellings(text: str) -> list[bytes]:
    """The text as it is, escaped in JSON, and in base64 at each of three offsets."""
    raw = text.encode()
    coded = [base64.b64encode(raw[offset:])[:-4] for offset in range(3)]
    return [raw, json.dumps(text)[1:-1].encode(), *coded]


def test_neither_the_relay_nor_the_traffic_has_a_plaintext(
    machines: dict[str, Machine], recorder: Machine
) -> None:
    for name in TEXTS:
        register(machines, name)
    anna, bert = machines["anna"], machines["bert"]
    anna.sh("agentlip", "network", "request", "bert", "--greeting", GREETING)
    bert.sh("agentlip", "network", "accept", "anna")
    for name, other in (("anna", "bert"), ("bert", "anna")):
        machine = machines[name]
        until(lambda m=machine: m.json("network", "contacts")[0]["online"], 150, "heartbeats")
        machine.sh("agentlip", "outbox", "send", f"network:{other}", TEXTS[name])
    for name, sender in (("anna", "bert"), ("bert", "anna")):
        messages = [(sender, TEXTS[sender])]
        until(lambda m=machines[name], r=messages: received(m) == r, what=f"from {sender}")

    traffic = recorder.container.exec_run(["cat", "/tmp/traffic"])[1]
    stored = machines["relay"].files("/data") + machines["relay"].container.logs()
    assert GREETING.encode() in traffic  # the search finds what is there
    assert GREETING.encode() in stored
    assert traffic.count(b'"ciphertext"') >= 2
    assert b"ciphertext" not in stored
    for text in TEXTS.values():
        for spelling in spellings(text):
            assert spelling not in traffic
            assert spelling not in stored
    for name, machine in (("anna", anna), ("bert", bert)):  # where both have to be
        everything = machine.files("/data")
        assert all(text.encode() in everything for text in TEXTS.values()), name


def received(machine: Machine) -> list[tuple[str, str]]:
    rows = machine.json("inbox", "list", "--mesh", "network")["messages"]
    return [(row["sender_name"], row["body"]) for row in rows]
