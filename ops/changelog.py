"""Collects the notes in changelog/ into a CHANGELOG.md section."""

import re
from pathlib import Path

NOT_RELEASED = "not released"
"""Replaces the date in a section's heading until the release."""
KINDS = ("Added", "Changed", "Deprecated", "Fixed", "Removed", "Security")


def notes(root: Path) -> list[Path]:
    """Return the changelog/ files that the next release collects, by name."""
    return sorted(path for path in (root / "changelog").glob("*.md") if path.name != "README.md")


def section_of(root: Path, version: str) -> str:
    """Return a version's section with its heading; empty if there is none."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    match = re.search(rf"^## {re.escape(version)}(?= ).*?(?=^## |\Z)", text, re.M | re.S)
    return match[0].strip() + "\n" if match else ""


def is_released(section: str) -> bool:
    return bool(section) and f"({NOT_RELEASED})" not in section.partition("\n")[0]


def collect(root: Path, version: str, date: str) -> int:
    """Write the section for `version`, delete the notes, and return their number.

    If the section exists but is not released, add the date and put the notes first.
    """
    written = section_of(root, version)
    if is_released(written):
        raise SystemExit(f"CHANGELOG.md has a section for {version} already: raise __version__")
    paths = notes(root)
    if not paths and not written:
        raise SystemExit("there are no notes in changelog/: see changelog/README.md")
    path = root / "CHANGELOG.md"
    head, mark, older = path.read_text("utf-8").replace(written, "").partition("\n## ")
    section = render(version, date, [note.read_text("utf-8") for note in paths])
    text = section + written.partition("\n")[2]
    path.write_text(f"{head.rstrip()}\n\n{text}{mark}{older}", "utf-8")
    for note in paths:
        note.unlink()
    return len(paths)


def render(version: str, date: str, texts: list[str]) -> str:
    """Return the section: one list for each kind of change. A note begins with its kind and a
    colon."""
    parts = [f"## {version} ({date})\n"]
    for kind in KINDS:
        items = [_item(text, kind) for text in texts if text.startswith(f"{kind}: ")]
        if items:
            parts.append(f"### {kind}\n\n" + "\n".join(items) + "\n")
    return "\n".join(parts)


def _item(text: str, kind: str) -> str:
    words = text.removeprefix(f"{kind}: ").split()
    return "- " + " ".join(words).replace("](../", "](")
