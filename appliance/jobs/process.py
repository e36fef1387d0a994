"""Runs attempts as processes: one supervisor for each attempt, which ends with the appliance."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.child.fork_template import START_SECONDS, ForkTemplate
from appliance.child.line_process import LineProcess, ProcessEnded, ResponseLate, ResponseTooLong
from appliance.jobs import wire
from appliance.jobs.executor import AttemptEnd, AttemptOrder, NotStarted
from appliance.jobs.handles import EVENT, EVENT_FILE, is_running, start_ticks
from appliance.jobs.states import CANCELLED, FAILED, LOST, SUCCEEDED

END_SECONDS = 60.0  # after the time limit, until the attempt ends
INHERITED_VARIABLES = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"}
ANSWER_BYTES_MAX = 64 * 1024
CGROUPS = Path("/sys/fs/cgroup")
LAUNCHER = f"{__package__}.launcher"


class ForkedProcess(LineProcess):
    """A child process that the template forks."""

    handle = ""

    def has_ended(self) -> bool:
        return not is_running(self.handle)


class ProcessExecution:
    """One attempt. `wait` is called once, and never raises.

    handle    identifies the attempt to a later process
    limits    how the limits are enforced
    survives  whether it outlives the appliance, so that the next process adopts it"""

    survives = False

    def __init__(self, template: ForkTemplate, order: AttemptOrder, container: Any = None) -> None:
        spec = order.spec
        self._spec = spec
        is_limited = container is None and (spec.cpus or spec.memory_mb)
        cgroup = _cgroup_for(order) if is_limited else None
        fields = msgspec.structs.asdict(spec) | {
            "environment": {**inherited_environment(), **order.environment},
            "folder": str(order.folder),
            "output": str(order.kept / f"{order.number}.log"),
            "artefacts": str(order.artefacts),
            "cgroup": cgroup and str(cgroup),
            "container": container,
        }
        try:
            order.kept.parent.mkdir(mode=0o700, exist_ok=True)
            order.artefacts.mkdir(parents=True, exist_ok=True)
            if EVENT in order.environment:
                (order.kept / EVENT_FILE).write_text(order.environment[EVENT], "utf-8")
            self._process = ForkedProcess(template.fork)
            first = self._request(msgspec.json.encode(fields), START_SECONDS)
        except (OSError, ProcessEnded, ResponseLate, ResponseTooLong) as error:
            raise NotStarted(f"its process can't be started: {error}") from error
        self._launcher, pid = first["launcher"], first["supervisor"]
        self.limits = first["limits"] if spec.memory_mb or spec.cpus else "none"
        self.handle = self._process.handle = f"{pid}:{start_ticks(pid)}"
        self._process.pid = pid

    def wait(self) -> AttemptEnd:
        try:
            last = self._request(b"wait", self._spec.timeout_seconds + END_SECONDS)
        except (OSError, ProcessEnded, ResponseLate, ResponseTooLong):
            return AttemptEnd(LOST, error="its supervisor ended")
        finally:
            self.kill()
        state, error = _outcome(last["reason"], last["code"], self._spec)
        artefacts = msgspec.convert(last["artefacts"], list[wire.Artefact])
        return AttemptEnd(state, last["code"], error, last["bytes"], last["tail"], artefacts)

    def cancel(self) -> None:
        """End the attempt soon; `wait` returns then."""
        if self._process.alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._launcher, signal.SIGTERM)

    def kill(self) -> None:
        """End the attempt at once. A container goes on, for the next process."""
        self._process.kill()

    def remove(self) -> None:
        """Remove the container. Call after `wait`. Raises OSError."""

    def _request(self, line: bytes, seconds: float) -> Any:
        return msgspec.json.decode(self._process.ask(line, seconds, ANSWER_BYTES_MAX))


Start = Callable[[AttemptOrder], ProcessExecution]
"""Starts an attempt. Raises NotStarted."""

Find = Callable[[str], Mapping[str, str] | None]
"""Returns the environment that an earlier process's attempt left running, by its handle. Raises
OSError if that can't be determined now."""


def inherited_environment() -> dict[str, str]:
    """Return the variables that every job process inherits. `agentlip` is on its path."""
    variables = {name: os.environ[name] for name in INHERITED_VARIABLES & os.environ.keys()}
    programs = variables.get("PATH", os.defpath)
    return variables | {"PATH": f"{programs}:{Path(sys.executable).parent}"}


def _outcome(reason: str, code: int, spec: wire.JobSpec) -> tuple[str, str | None]:
    """Return a command's state and error. `reason`: why the launcher ended it, or empty."""
    if reason == "cancelled":
        return CANCELLED, None
    if reason:
        return FAILED, f"timed out after {spec.timeout_seconds:g} s"
    if code in spec.success_codes:
        return SUCCEEDED, None
    return FAILED, f"ended by signal {-code}" if code < 0 else f"exit code {code}"


def _cgroup_for(order: AttemptOrder) -> Path | None:
    """Return the attempt's cgroup folder, if this process may make one: beside its own, in a
    subtree that systemd delegated (`Delegate=yes` and `DelegateSubgroup=`)."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="ascii").partition("::")[2].strip()
        above = (CGROUPS / own.lstrip("/")).parent
        if os.getxattr(above, "user.delegate") != b"1":  # set by systemd
            return None
        (above / "cgroup.subtree_control").write_text("+memory +cpu", encoding="ascii")
    except (OSError, ValueError):
        return None
    return above / f"job-{order.run_id}-{order.number}"
