"""Runs attempts in containers. A container survives the appliance, is adopted by name by the next
process, and is removed after its attempt."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.child.fork_template import ForkTemplate
from appliance.jobs import engine
from appliance.jobs.executor import AttemptOrder, NotStarted
from appliance.jobs.handles import EVENT, EVENT_FILE, LABEL, PREFIX, container_name
from appliance.jobs.process import ProcessExecution
from appliance.jobs.settings import JobsSettings

ARTEFACTS = "/artefacts"


def start(settings: JobsSettings, template: ForkTemplate, order: AttemptOrder) -> ProcessExecution:
    """Start an attempt as a process or a container. Raises NotStarted."""
    spec = order.spec
    if spec.spark:
        if not settings.spark:
            raise NotStarted("a Spark job needs `spark` in [jobs]")
        spec = msgspec.structs.replace(spec, command=(*settings.spark, *spec.command))
        order = msgspec.structs.replace(order, spec=spec)
    if spec.image is None:
        return ProcessExecution(template, order)
    if settings.container_socket is None:
        raise NotStarted("a job with an image needs `container_socket` in [jobs]")
    return ContainerExecution(template, order, settings.container_socket)


class ContainerExecution(ProcessExecution):
    """One attempt in a container. The launcher's process follows the container instead of
    running a command."""

    survives = True

    def __init__(self, template: ForkTemplate, order: AttemptOrder, path: str) -> None:
        self._path, name = path, container_name(order.run_id, order.number)
        body = None if order.is_adopted else _body(order)
        super().__init__(template, order, {"path": path, "name": name, "body": body})
        self.handle, self.limits = name, "container"

    def remove(self) -> None:
        engine.request(self._path, "DELETE", f"/containers/{self.handle}?force=1&v=1")


def find(path: str | None, handle: str) -> Mapping[str, str] | None:
    """Return the environment in the container that an earlier process's attempt left; None
    without one. Raises OSError if the engine does not respond."""
    if path is None or not handle.startswith(PREFIX):
        return None
    status, shown = engine.request(path, "GET", f"/containers/{handle}/json")
    if status != 200:
        return None
    return dict(pair.split("=", 1) for pair in shown["Config"]["Env"])


def _body(order: AttemptOrder) -> dict[str, Any]:
    """Describe the container, which runs as the appliance's user without any capability, so mounted
    folders give no more access than the appliance has."""
    spec, inside = order.spec, {"AGENTLIP_ARTEFACTS": ARTEFACTS}
    folders = [f"{order.artefacts}:{ARTEFACTS}"]
    if EVENT in order.environment:
        inside[f"{EVENT}_FILE"] = f"/{EVENT_FILE}"
        folders.append(f"{order.kept / EVENT_FILE}:/{EVENT_FILE}:ro")
    for mount in spec.mounts:
        source, _, target = mount.partition(":")
        folders.append(f"{order.folder / source}:{target}")
    return {
        "Image": spec.image,
        "Cmd": spec.command or None,
        "Env": [f"{name}={value}" for name, value in {**order.environment, **inside}.items()],
        "Labels": {LABEL: str(order.folder)},
        "User": f"{os.geteuid()}:{os.getegid()}",
        "HostConfig": {
            "Binds": folders,
            "NetworkMode": spec.network,
            "Memory": (spec.memory_mb or 0) * 2**20,
            "NanoCpus": int((spec.cpus or 0) * 10**9),
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "Init": True,
        },
    }
