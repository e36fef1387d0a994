"""`agentlip backup targets|upload|fetch` as processes, with a real S3 server."""

from pathlib import Path

import pytest

from appliance.workspace.datadir import DataDir
from tests.support.backup_targets import TargetBackups
from tests.support.commands import agentlip
from tests.support.s3server import ACCESS, SECRET, S3Server
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}


SETTINGS = """
[backup]
free_bytes_min = 0

[[backup.targets]]
name = "offsite"
url = "s3://backups/{folder}"
endpoint = "{endpoint}"
"""


def test_no_output_contains_a_key(s3: S3Server, tmp_path: Path) -> None:
    workspace = Filled(tmp_path / "workspace").path
    settings = SETTINGS.format(folder=tmp_path.name, endpoint=s3.endpoint)
    (workspace / "agentlip.toml").write_text(settings)
    TargetBackups.of(DataDir(workspace)).add({"db.zst.age": b"rows"})
    wrong = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET + "x"}
    for keys, codes in ((wrong, (0, 18, 22)), (KEYS, (0, 0, 0))):
        commands = (["targets"], ["upload"], ["fetch", "--latest"])
        for arguments, code in zip(commands, codes, strict=True):
            for flag in ([], ["--json"]):
                seen = agentlip("backup", *arguments, *flag, cwd=workspace, **keys)
                assert seen.code == code, seen
                assert SECRET not in seen.out + seen.err
                assert ACCESS not in seen.out + seen.err
    for path in workspace.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
