"""The measured machine: which processes used its cores, how fast it syncs, what it is."""

import os
import platform
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.client import NOW
from tests.bench.figures import Row, milliseconds

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
GENERATOR_CORES_MAX = 0.85
OTHER_CORES_MAX = 0.3
SYNC_BYTES = 4096


class Meter:
    """Wall time and cores in use, by the server, the generator, and everybody else."""

    def __init__(self, *pids: int) -> None:
        """With several servers, `server_main_thread` is that of the busiest one."""
        self._pids = pids
        self.seconds = 0.0
        self.cores: dict[str, float] = {}

    def __enter__(self) -> "Meter":
        self._threads = self._thread_seconds()
        self._generator = generator_seconds()
        self._busy = busy_seconds()
        self._began = NOW()
        return self

    def __exit__(self, *failure: object) -> None:
        self.seconds = NOW() - self._began
        threads = self._thread_seconds()
        used = {key: value - self._threads.get(key, 0.0) for key, value in threads.items()}
        server = sum(used.values())
        generator = generator_seconds() - self._generator
        others = max(0.0, busy_seconds() - self._busy - server - generator)
        self.cores = {
            "server": self._share(server),
            "server_main_thread": self._share(max(used.get(pid, 0.0) for pid in self._pids)),
            "generator": self._share(generator),
            "others": self._share(others),
        }

    def _thread_seconds(self) -> dict[int, float]:
        return {key: value for pid in self._pids for key, value in thread_seconds(pid).items()}

    def _share(self, seconds: float) -> float:
        return round(seconds / self.seconds, 2)

    @property
    def warnings(self) -> list[str]:
        output = []
        if self.cores["generator"] > GENERATOR_CORES_MAX:
            output.append(
                f"the generator used {self.cores['generator']} cores: it may be the limit"
            )
        if self.cores["others"] > OTHER_CORES_MAX:
            output.append(f"others used {self.cores['others']} cores: the machine was not quiet")
        return output


def process_tree(pid: int) -> list[int]:
    results, todo = [], [pid]
    while todo:
        item = todo.pop()
        results.append(item)
        for task in _listing(f"/proc/{item}/task"):
            todo += [int(child) for child in _text(f"/proc/{item}/task/{task}/children").split()]
    return sorted(set(results))


def thread_seconds(pid: int) -> dict[int, float]:
    """CPU seconds of every thread in the tree below `pid`, by thread id."""
    seconds = {}
    for item in process_tree(pid):
        for task in _listing(f"/proc/{item}/task"):
            precise = _text(f"/proc/{item}/task/{task}/schedstat").split()
            if precise:
                seconds[int(task)] = int(precise[0]) / 1e9
                continue
            fields = _text(f"/proc/{item}/task/{task}/stat").rpartition(")")[2].split()
            if fields:
                seconds[int(task)] = (int(fields[11]) + int(fields[12])) / TICKS
    return seconds


def generator_seconds() -> float:
    """This process and its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def busy_seconds() -> float:
    """What all cores spent on anything, stolen time included."""
    fields = [int(field) for field in _text("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def memory_mb(pid: int) -> float:
    """Resident memory of the whole tree."""
    kilobytes = 0
    for item in process_tree(pid):
        for line in _text(f"/proc/{item}/status").splitlines():
            if line.startswith("VmRSS:"):
                kilobytes += int(line.split()[1])
    return round(kilobytes / 1024, 1)


def sync_seconds(directory: Path, count: int) -> list[float]:
    """Times of `count` fdatasyncs of a page overwritten in a file of `directory`."""
    path, seconds = directory / "bench-sync", []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, bytes(SYNC_BYTES), 0)
        os.fsync(descriptor)
        for _ in range(count):
            os.pwrite(descriptor, os.urandom(SYNC_BYTES), 0)
            began = NOW()
            os.fdatasync(descriptor)
            seconds.append(NOW() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return seconds


def conditions(directory: Path) -> dict[str, Any]:
    """The facts about the machine that are needed to interpret a figure."""
    synced = sync_seconds(directory, 200)
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "filesystem": _filesystem(directory),
        "fdatasync_ms": {"p50": milliseconds(synced, 0.5), "p99": milliseconds(synced, 0.99)},
        "load_before": load(),
        "commit": _commit(),
    }


def load() -> float:
    """Processes that wanted a core, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _commit() -> str | None:
    """The commit measured; with a plus when files differ from it."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def _filesystem(directory: Path) -> str:
    """Its type, of the longest mount point above `directory`."""
    best, kind = "", "unknown"
    position = str(directory.resolve())
    for line in _text("/proc/self/mounts").splitlines():
        _, mount, name = line.split()[:3]
        inside = position == mount or position.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind


def _cpu_name() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def require_linux() -> None:
    if not sys.platform.startswith("linux"):
        raise SystemExit("the benchmark reads /proc and uses epoll: it runs on Linux")


class Metered:
    """What keeps how the runs of its rows went, and whom they have to be doubted for."""

    warnings: list[str]

    def metered(self, row: Row, variant: str, meter: Meter, **facts: Any) -> None:
        seconds = round(meter.seconds, 3)
        result = {"variant": variant, "seconds": seconds, **facts, "cores": meter.cores}
        row.runs.append({**result, "warnings": meter.warnings})
        self.warnings += [f"{row.row} {variant}: {warning}" for warning in meter.warnings]
