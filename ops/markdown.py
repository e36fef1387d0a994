"""Renders parts of generated pages."""

from collections.abc import Iterable, Sequence

MADE = "<!-- Below this line: made by ops/write_docs.py from the code: `just docs`. -->"


def page(sections: Iterable[str]) -> str:
    """Return a page's generated part. People write the text before it."""
    return "\n\n".join([MADE, *filter(None, sections)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""
