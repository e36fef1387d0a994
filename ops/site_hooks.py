"""Adapts the pages to MkDocs, which takes one word behind a fence: `sh run` becomes `sh`."""

import re
from typing import Any

FENCE = re.compile(r"^( *```[a-z]+) [^\n`]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = FENCE.sub(r"\1", markdown)
    return re.sub(r"(?m)^( *```)output$", r"\1text", markdown)
