"""The oldest workspace that the program opens, which every later program has to open too.

    python -m tests.migrations.oldest

writes it: the program of this checkout serves an empty folder, with rows in every store. Do that
only when support of the present file ends: users may still have such workspaces.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from appliance.workspace.datadir import DataDir
from tests.doctor.used import use
from tests.support.commands import succeed

ARCHIVE = Path(__file__).with_name("oldest.tar.xz")
OF_THE_PROCESS = ("backups", "locks", "logs", "sock", "server.json", "server.log")


def unpack_oldest(folder: Path) -> DataDir:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder)
    return DataDir(folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        use(workspace)
        succeed("relay", "admins", "add", "ada", "--new-key", "ada.key", cwd=workspace)
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for path in sorted(workspace.iterdir()):
                archive.add(path, path.name, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in OF_THE_PROCESS:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main())
