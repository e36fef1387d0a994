"""Writes generated files after a writer has rendered them."""

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write(texts: Mapping[str, str]) -> int:
    """Write the files whose text has changed, by their paths from the root folder, and name
    them. With `--check`, only name them and return exit code 1 if there are any."""
    check = "--check" in sys.argv
    stale = [name for name, text in texts.items() if _read(ROOT / name) != text]
    for name in stale:
        print(name)
        if not check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(texts[name], "utf-8")
    return int(check and bool(stale))


def _read(file: Path) -> str | None:
    return file.read_text("utf-8") if file.is_file() else None
