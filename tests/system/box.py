"""The image as a user runs it: read-only root, no capability, one volume, one port."""

import json
from http.client import HTTPConnection
from typing import Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

from tests.support.until import until
from tests.system.checkout import LABELS

PORT = 7464
START_SECONDS_MAX = 30


class Box:
    """One container of the appliance over a volume that outlives it."""

    def __init__(
        self,
        image: str,
        volume: str,
        *words: str,
        mode: str = "rw",
        env: dict[str, str] | None = None,
        seccomp: str = "",
        **more: Any,
    ) -> None:
        self._container = (
            DockerContainer(image)
            .with_volume_mapping(volume, "/data", mode)
            .with_tmpfs_mount("/tmp")
            .with_envs(**(env or {}))
            .with_kwargs(
                read_only=True,
                cap_drop=["ALL"],
                security_opt=[
                    "no-new-privileges:true",
                    *([f"seccomp={seccomp}"] if seccomp else []),
                ],
                mem_limit="512m",
                labels=LABELS,
                **more,
            )
        )
        if words:
            self._container.with_command(list(words))
        # Published on the loopback only; with_exposed_ports would publish everywhere.
        self._container.ports = {f"{PORT}/tcp": ("127.0.0.1",)}
        self._token = ""
        self._removed = False

    def start(self) -> "Box":
        """Starts it and waits until it answers."""
        answers = HttpWaitStrategy(PORT, "/health").with_startup_timeout(START_SECONDS_MAX)
        self._container.waiting_for(answers).start()
        return self

    def run(self) -> tuple[int, str]:
        """Starts it where it is expected to end by itself: exit code and what it said."""
        self._container.start()
        code = self.exit_code()
        return code, self.output()

    def restart(self) -> None:
        """The same container once more, after it was killed or stopped."""
        self.wrapped.start()
        until(self._is_healthy, START_SECONDS_MAX, "an answer from /health")

    def remove(self) -> None:
        if not self._removed:
            self._container.stop()
        self._removed = True

    @property
    def wrapped(self) -> Any:
        return self._container.get_wrapped_container()

    @property
    def port(self) -> int:
        self.wrapped.reload()
        bindings = self.wrapped.ports[f"{PORT}/tcp"]
        assert [binding["HostIp"] for binding in bindings] == ["127.0.0.1"]
        return int(bindings[0]["HostPort"])

    @property
    def token(self) -> str:
        if not self._token:
            self._token = self.sh("cat /data/.agentlip/token").strip()
        return self._token

    def sh(self, command: str, expect: int | None = 0) -> str:
        """Runs a shell command inside, as the image's own user."""
        result = self._container.exec(["sh", "-c", command])
        text = result.output.decode()
        assert expect is None or result.exit_code == expect, text
        return text

    def output(self) -> str:
        return self.wrapped.logs().decode()

    def exit_code(self) -> int:
        return int(self.wrapped.wait(timeout=START_SECONDS_MAX)["StatusCode"])

    def signal(self, name: str) -> None:
        self.wrapped.kill(signal=name)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request over a connection of its own: status and decoded body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            headers = JSON if path == "/health" else JSON | bearer(self.token)
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            connection.close()

    def topic(self) -> str:
        """A fresh channel and topic to post to."""
        status, reply = self.request("POST", "/api/v1/channels", {"name": "general"})
        assert status == 201, reply
        channel = reply["channel"]["id"]
        topic = {"channel_id": channel, "title": "first"}
        status, reply = self.request("POST", "/api/v1/topics", topic)
        assert status == 201, reply
        return str(reply["topic"]["id"])

    def _is_healthy(self) -> bool:
        try:
            return self.request("GET", "/health")[0] == 200
        except (OSError, KeyError):
            return False


JSON = {"Content-Type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def message(topic: str, text: str) -> dict[str, str]:
    return {"topic_id": topic, "sender": "tester", "content_raw": text}


def stop(box: Box) -> None:
    box.signal("SIGTERM")
    assert box.exit_code() == 0
    box.remove()
