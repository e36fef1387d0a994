"""What tests of repairs beside a running appliance share: breakages, and what must stay equal."""

import json
from collections.abc import Callable
from typing import Any

from tests.doctor import breakages
from tests.doctor.breakages import UsedWorkspace
from tests.doctor.patience import PATIENCE
from tests.doctor.repairs import data_of
from tests.support.commands import CommandOutput, agentlip
from tests.support.servedhub import ServedHub

DATA = ("hub.channels", "hub.topics", "hub.messages", "hub.events", "hub.topic_attachments")
Break = Callable[[ServedHub], None]


def skip_index(hub: ServedHub) -> None:
    breakages.skipped_index(UsedWorkspace(hub.workspace))


def repair(hub: ServedHub, *arguments: str) -> CommandOutput:
    """Without `--json`, so that it has the same output as a person sees."""
    return agentlip("doctor", "repair", *arguments, "--yes", cwd=hub.workspace, **PATIENCE)


def findings(hub: ServedHub, *arguments: str) -> list[str]:
    """The checks that find something."""
    done = agentlip("doctor", "--json", *arguments, cwd=hub.workspace, **PATIENCE)
    report = json.loads(done.out)
    return [check["check"] for check in report["checks"] if check["findings"]]


def data(hub: ServedHub) -> dict[str, Any]:
    return {name: rows for name, rows in data_of(UsedWorkspace(hub.workspace)).items()
            if name in DATA}  # fmt: skip


def is_indexed(hub: ServedHub) -> bool:
    return bool(hub.rows("SELECT indexed >= (SELECT max(rowid) FROM messages) FROM x_fts")[0][0])
