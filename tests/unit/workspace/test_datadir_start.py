"""What a start reads of the files of another process: its number, and its token."""

import json
import os
import sys
from pathlib import Path

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir, pid_alive
from appliance.workspace.schema import create_workspace


def test_invalid_process_numbers_are_not_alive() -> None:
    assert pid_alive(os.getpid())
    assert not any(pid_alive(pid) for pid in (0, -1, 2**22 + 1, 2**70))


@pytest.mark.parametrize(
    ("mode", "more", "kept"),
    [(0o600, {}, True), (0o644, {}, False), (0o600, {"app_version": "1"}, False)],
)
def test_token_of_another_implementation_is_kept(
    tmp_path: Path, mode: int, more: dict[str, str], kept: bool
) -> None:
    data = DataDir(tmp_path)
    data.dir.mkdir()
    data.server_file.write_text(json.dumps({"port": 1, "auth_token": "t" * 64, **more}))
    data.server_file.chmod(mode)
    create_workspace(data, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error"))
    assert (data.read_token() == "t" * 64) == kept
