"""Prometheus, its tool and Alertmanager, as Debian has them: `ops/test` unpacks the packages."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from ops.monitoring.rules import Row
from tests.contract.test_walls import ROOT
from tests.support.until import until

UNPACKED = ROOT / ".cache" / "debian" / "usr" / "bin"
RULES = ROOT / "ops" / "prometheus"
SECONDS_MAX = 300


def program(name: str) -> Path:
    """Skips the test if the program is missing and may be."""
    folders = [str(UNPACKED), str(UNPACKED.with_name("sbin")), os.environ["PATH"]]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        if os.environ.get("CONTAINERS_MUST_RUN") == "1":  # in CI nothing may be left out
            pytest.fail(f"{name} is missing")
        pytest.skip(f"{name} is missing; ops/test unpacks it")
    return Path(path)


def run(name: str, *arguments: Any, cwd: Path = RULES) -> str:
    """The output of a run that succeeds."""
    command = [program(name), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A server that scrapes every second. `targets`: job → (port, token)."""

    def __init__(
        self, folder: Path, rules: Row, targets: dict[str, tuple[int, str]], alertmanager: int = 0
    ) -> None:
        self.port = free_port()
        (folder / "rules.yaml").write_text(json.dumps(rules))
        scrapes = []
        for job, (port, token) in targets.items():
            (folder / f"{job}.token").write_text(token)
            scrapes.append({
                "job_name": job,
                "authorization": {"credentials_file": str(folder / f"{job}.token")},
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            })  # fmt: skip
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": scrapes,
        }
        if alertmanager:
            managers = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
            configuration["alerting"] = {"alertmanagers": managers}
        (folder / "prometheus.yaml").write_text(json.dumps(configuration))
        self.command = [
            program("prometheus"), f"--config.file={folder}/prometheus.yaml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip

    def query(self, expr: str) -> list[Row]:
        """The results of an expression now."""
        return self._results(f"query?query={quote(expr)}")

    def query_range(self, expr: str, start: float, end: float, step_seconds: float) -> list[Row]:
        """The results of an expression at each step."""
        return self._results(
            f"query_range?query={quote(expr)}&start={start}&end={end}&step={step_seconds}"
        )

    def _results(self, query: str) -> list[Row]:
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{query}", timeout=30) as reply:
            results: list[Row] = json.load(reply)["data"]["result"]
        return results

    def firing(self) -> set[str]:
        alerts = self.query('ALERTS{alertstate="firing"}')
        return {alert["metric"]["alertname"] for alert in alerts}


def with_shared_files(path: Path) -> list[Any]:
    """The command of a program that reads /usr/share/prometheus: in a view of the file system that
    has the unpacked files there, too. Needs root."""
    share = path.parent.parent / "share"
    if share == Path("/usr/share"):
        return [path]
    if os.geteuid() != 0:
        pytest.skip("only root can mount file systems")
    mount = f"mount -t overlay overlay -o lowerdir={share}:/usr/share /usr/share"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$0" "$@"', path]


@contextmanager
def started(command: Sequence[Any], port: int, log: Path) -> Iterator[None]:
    """Runs a program until the block ends, from when it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)
    try:
        until(lambda: _is_ready(process, port), 60, f"{command[0]} is ready", 0.2)
        yield
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None, "it has ended"
    try:
        with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as reply:
            return int(reply.status) == 200
    except OSError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
