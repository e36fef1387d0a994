"""Lists CONTENTS: every file and folder that a workspace can hold.

Backups, restores, checks, `agentlip recover` and the reference page about files derive from
CONTENTS. Stores come from their declarations, everything else from `contents.toml`. A file that no
row names fails a test.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from appliance.kernel.store_declaration import DECLARATIONS, note_of, path_of

Kind = Literal["store", "secret", "settings", "record", "blob"]
_SIGNS = {"**/": r"(?:\w[\w.-]*/)*", "*": r"\w[\w.-]*"}
_SIGN = re.compile(r"(\*\*/|\*)")


class WorkspaceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file, or files with one purpose.

    path       relative to the workspace; `*` stands for a name, `**/` for any folders, and a path
               that ends with / for the folder and everything below
    kind       how a backup keeps the file; None: not in backups
    sqlite     a database with a log, which a backup copies by SQLite
    about      the described store: both files go together
    replaced   a restore removes the file if the backup has none
    recorded   `stores.json` records the file's presence
    checks     the doctor's checks that notice a missing or damaged file
    recovered  the command that saves a damaged file's readable part
    """

    path: str
    contents: str
    mode: str = "0600"
    kind: Kind | None = None
    sqlite: bool = False
    about: str = ""
    replaced: bool = False
    recorded: bool = False
    checks: tuple[str, ...] = ()
    recovered: str = ""

    def matches(self, path: str) -> bool:
        """Return whether a path relative to the workspace matches."""
        own = "".join(_SIGNS.get(part) or re.escape(part) for part in _SIGN.split(self.path))
        return re.fullmatch(own + ".*" if own.endswith("/") else own, path) is not None

    def find(self, workspace: Path) -> Iterator[Path]:
        """Yield the existing files, in no order. Links are not followed into folders."""
        for path in workspace.glob(self.path):
            if path.is_file() and self.matches(path.relative_to(workspace).as_posix()):
                yield path


def _stores() -> Iterator[WorkspaceFile]:
    for store, declared in DECLARATIONS.items():
        yield WorkspaceFile(
            path_of(store),
            declared.contents,
            kind="store",
            sqlite=True,
            replaced=not declared.shared,
            checks=("store.opens", "store.integrity", "store.objects", "store.record"),
            recovered=f"agentlip recover {store}",
        )
        if not declared.numbers_events:
            what = f"{store}'s newest commit number, to notice a file that lacks it"
            yield WorkspaceFile(note_of(store), what, about=store, checks=("store.record",))
        if declared.blobs and declared.blobs.counts:
            path = f"{declared.blobs.folder}/sha256-*"
            yield WorkspaceFile(path, "large payloads, and files that agents put", kind="blob")


_TEXT = resources.files(__package__).joinpath("contents.toml").read_text(encoding="utf-8")
CONTENTS = (*_stores(), *msgspec.convert(tomllib.loads(_TEXT)["file"], list[WorkspaceFile]))


def list_beside(store: str) -> list[str]:
    """Return the files about a store's file, which go when the store's file is replaced."""
    return [row.path for row in CONTENTS if row.about == store]
