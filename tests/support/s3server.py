"""A real S3 server in a process of its own: SeaweedFS, on this machine only.

It keeps its ports and its data when it is killed and started again.
"""

import ctypes
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from appliance.backup.settings import TargetSettings
from tests.support.until import until

ACCESS = "PLANTEDACCESSKEY0000"
SECRET = "planted-secret-key-that-nobody-may-see"
BUCKET = "backups"
START_SECONDS_MAX = 120.0
_PR_SET_PDEATHSIG = 1
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


class S3Server:
    """The process. `keys` is a directory with the files `access` and `secret`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        self.keys.mkdir(parents=True)
        (self.keys / "access").write_text(ACCESS + "\n")
        (self.keys / "secret").write_text(SECRET + "\n")
        (folder / "data").mkdir()
        self._config = folder / "s3.json"
        credentials = [{"accessKey": ACCESS, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "test", "credentials": credentials, "actions": actions}
        self._config.write_text(json.dumps({"identities": [identity]}))
        self._ports = free_ports(2 * len(_PORTS))
        self.port = self._ports[_PORTS.index("s3.port")]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the bucket accepts a file."""
        half = len(_PORTS)
        flags = [f"-{name}={port}" for name, port in zip(_PORTS, self._ports, strict=False)]
        flags += [
            f"-{name}.grpc={port}" for name, port in zip(_PORTS, self._ports[half:], strict=True)
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("weed")), "server",
                 f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 "-s3", f"-s3.config={self._config}", "-master.volumeSizeLimitMB=64",
                 "-volume.max=50", "-master.telemetry=false", "-s3.port.iceberg=0",
                 "-s3.port.lance=0", f"-s3.localSocket={self.folder / 's3.sock'}",
                 f"-filer.localSocket={self.folder / 'filer.sock'}", *flags],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_end_with_parent,
            )  # fmt: skip
        until(self._accepts, START_SECONDS_MAX, "the S3 server accepts files", 0.2)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def store(self, prefix: str = "") -> S3Store:
        """The bucket, to see and to damage what is there."""
        return S3Store(
            BUCKET,
            prefix=prefix or None,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS,
            secret_access_key=SECRET,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, "timeout": timedelta(seconds=20)},
            retry_config={"max_retries": 0},
        )

    def names(self, prefix: str = "") -> list[str]:
        return sorted(entry["path"] for page in self.store(prefix).list() for entry in page)

    def get(self, name: str) -> bytes:
        return bytes(obstore.get(self.store(), name).bytes())

    def put(self, name: str, content: bytes) -> None:
        obstore.put(self.store(), name, content, use_multipart=False)

    def flip(self, name: str, position: int = 0) -> None:
        content = bytearray(self.get(name))
        content[position] ^= 1
        self.put(name, bytes(content))

    def target(self, name: str = "offsite", prefix: str = "", **more: Any) -> TargetSettings:
        given: dict[str, Any] = {
            "url": f"s3://{BUCKET}/{prefix}",
            "endpoint": self.endpoint,
            "access_key_file": str(self.keys / "access"),
            "secret_key_file": str(self.keys / "secret"),
        }
        return TargetSettings(name=name, **{**given, **more})

    def _accepts(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            connection.request("GET", "/status")
            connection.getresponse().read()
            connection.close()
            with suppress(obstore.exceptions.BaseError):
                self.put("probe", b"probe")
                return self.get("probe") == b"probe"
        return False


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    server = S3Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _end_with_parent() -> None:
    """A test run that is killed leaves no server."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
