"""Links file paths in a message, with line numbers (linkifier).

    src/app.py:12      kind code_ref    {"path": "src/app.py", "line": 12}
    app.py#L12-L20     kind code_ref    {"path": "app.py", "line": 12, "end_line": 20}
    docs/intro.md      kind file_path   {"path": "docs/intro.md"}

config:
    url         link template: "https://git.example.com/repo/blob/main/{path}#L{line}"
    extensions  file extensions recognised without a folder in the path
    most        references in one message at most (default 50)

The files are not opened. Uses only the standard library.
"""

import re
from typing import Any
from urllib.parse import quote

VERSION = "1"
LENGTH_MAX = 400
EXTENSIONS = [
    *("c", "cc", "cpp", "cs", "css", "go", "h", "hpp", "html", "java", "js", "json", "jsx"),
    *("kt", "lua", "md", "php", "pl", "proto", "ps1", "py", "pyi", "rb", "rs", "rst", "scala"),
    *("sh", "sql", "swift", "toml", "ts", "tsx", "txt", "vue", "xml", "yaml", "yml", "zig"),
]
_TOKEN = re.compile(r"[^\s\"'`<>()\[\]{},;|*]+")
_REFERENCE = re.compile(
    r"(?P<path>(?:\.{0,2}/)?(?:[\w@+.-]+/)*[\w@+-][\w@+.-]*\.(?P<extension>[A-Za-z]\w{0,9}))"
    r"(?::(?P<line>\d{1,7})(?:-(?P<end>\d{1,7})|:\d{1,7})?"
    r"|#L(?P<hash_line>\d{1,7})(?:-L?(?P<hash_end>\d{1,7}))?)?"
)


def enrich(message: dict[str, Any], config: dict[str, Any]) -> list[dict[str, Any]]:
    extensions = {
        extension.lower().lstrip(".") for extension in config.get("extensions", EXTENSIONS)
    }
    template = config.get("url")
    findings_max = int(config.get("most", 50))
    findings: list[dict[str, Any]] = []
    for token in _TOKEN.finditer(message["content_raw"]):
        text = token.group().rstrip(".:!?")
        match = _REFERENCE.fullmatch(text) if len(text) <= LENGTH_MAX else None
        if match is None or "://" in text or len(findings) >= findings_max:
            continue
        path = match["path"]
        if "/" not in path and match["extension"].lower() not in extensions:
            continue
        span = {"start": token.start(), "end": token.start() + len(text)}
        findings.append(_finding(match, path, span, template))
    return findings


def _finding(
    match: re.Match[str], path: str, span: dict[str, int], template: str | None
) -> dict[str, Any]:
    line = match["line"] or match["hash_line"]
    end = match["end"] or match["hash_end"]
    data: dict[str, Any] = {"path": path}
    if line:
        data["line"] = int(line)
        if end and int(end) > int(line):
            data["end_line"] = int(end)
    if template:
        filled = template.replace("{path}", quote(path.removeprefix("./").lstrip("/")))
        data["url"] = filled.replace("{line}", line or "1")
    return {"kind": "code_ref" if line else "file_path", "span": span, "data": data}
