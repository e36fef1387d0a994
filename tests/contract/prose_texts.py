"""Finds the texts that people read, with their files and lines, for `tests.contract.prose`.

From Python: docstrings, comments (also those of settings), names of tests and, outside of `tests`,
strings that look like prose: error messages, hints, command help, OpenAPI summaries. From Markdown:
headings, paragraphs, list items and table cells. From scripts and configuration: comments.

Code is replaced by `x`: text in backticks, addresses, paths, names with an underscore or a dot,
options and words in capitals. So wire names may be written anywhere.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PRODUCT = ("appliance", "doctor", "ops", "spark", "migrations")
GENERATED = "<!-- Below this line: made by ops/write_docs.py"
WRITTEN = {"ops/agentlip.toml"}  # generated from linted texts
SHOWN = {"hint", "help", "summary", "message", "default_message", "default_hint"}

FENCE = re.compile(r"^( *)```.*?^\1``` *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(
    r"``[^`]+``|`[^`]+`"  # in backticks
    r"|<!--.*?-->"
    r"|\]\([^)\s]*\)"  # the target of a link
    r"|\b[a-z]+://\S+"
    r"|(?<!\S)--?[a-z][\w-]*"  # an option
    r"|[\w*]*[_./=@{}<>\\|]+(?=\w)[\w*./=@{}<>\\|-]*"  # a name with an underscore, a path
    r"|\b\w+\(\)"
    r"|\b[A-Z][A-Z0-9_-]{2,}\b",
    re.DOTALL,
)
WORDS = re.compile(r"[A-Za-z']+[,:;]?(?: +[`A-Za-z']+[,:;]?){2,}")
SQL = re.compile(
    r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WHERE|FROM|ORDER BY|VALUES|ALTER|DROP|SET|"
    r"JOIN|AND)\b"
)
STRING_OR_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''|'(?:[^'\\\n]|\\.)*'|#[^\n]*",
    re.DOTALL,
)
"""`tokenize` finds the same, and takes ten times as long."""
TOOL_COMMENT = re.compile(r"fmt:|type:|isort:|shellcheck |pragma:|noqa|!|-{3}|={3}")


class Text(NamedTuple):
    """A text with the line it begins on. Line breaks in it are line breaks in the file."""

    file: str
    line: int
    kind: str  # heading, paragraph, cell, docstring, comment, string, test
    text: str

    def line_at(self, position: int) -> int:
        return self.line + self.text.count("\n", 0, position)


def texts(file: str, source: str) -> Iterator[Text]:
    """The texts of one file, by the kind of its name."""
    if file in WRITTEN:
        return
    suffix = Path(file).suffix
    if suffix == ".py":
        yield from of_python(file, source)
    elif suffix == ".md":
        yield from of_markdown(file, source.partition(GENERATED)[0])
    elif suffix in {".toml", ".yaml"} or source.startswith("#!") or file == "Justfile":
        yield from hash_comments(file, source)


def masked(text: str) -> str:
    """The same length, with code replaced by `x`."""
    return CODE.sub(lambda match: re.sub(r"[^\n`\])]", "x", match[0]), text)


# -- Markdown ----------------------------------------------------------------------------


def of_markdown(file: str, source: str) -> Iterator[Text]:
    blank = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    block: list[str] = []
    first = 0
    for number, line in enumerate([*blank.splitlines(), ""], 1):
        item = re.match(r" *(?:[-*]|\d+\.) +", line)
        apart = not line.strip() or line.lstrip().startswith(("#", "|")) or item is not None
        if block and apart:
            yield Text(file, first, "paragraph", "\n".join(block))
            block = []
        if line.startswith("#"):
            yield Text(file, number, "heading", line.lstrip("# "))
        elif line.lstrip().startswith("|"):
            yield from cells(file, number, line)
        elif line.strip():
            first = first if block else number
            block.append(line[item.end() :] if item else line.strip())


def cells(file: str, number: int, line: str) -> Iterator[Text]:
    if set(line) <= set("|-: "):
        return
    for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
        if cell.strip():
            yield Text(file, number, "cell", cell.strip())


# -- Python ------------------------------------------------------------------------------


def of_python(file: str, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    own = set()
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.body and is_text(node.body[0]):
                constant = node.body[0].value
                own.add(id(constant))
                yield Text(
                    file,
                    constant.lineno,
                    "docstring",
                    dedented(constant.value, constant.col_offset),
                )
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = node.name.removeprefix("test_").replace("_", " ")
                yield Text(file, node.lineno, "test", words)
    yield from comments(file, source)
    if file.startswith(PRODUCT):
        yield from strings(file, tree, own)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and the statements inside. `ast.walk` is slow: it visits expressions too."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)


def is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def dedented(text: str, margin: int) -> str:
    """Without indentation, on the same lines; further indented examples are blank."""
    first, *rest = text.splitlines() or [""]
    after = ["" if line[margin:].startswith("    ") else line.strip() for line in rest]
    return "\n".join([first.strip(), *after])


def comments(file: str, source: str) -> Iterator[Text]:
    """Comment lines that follow each other are one text; a comment behind code is its own."""
    if "#" not in source:
        return
    block: list[str] = []
    first = last = 0
    for match in STRING_OR_COMMENT.finditer(source):
        if not match[0].startswith("#"):
            continue
        line = source.count("\n", 0, match.start()) + 1
        words = match[0].lstrip("#").strip()
        alone = not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if TOOL_COMMENT.match(words):
            continue
        if alone and block and line == last + 1:
            block.append(words)
        else:
            if block:
                yield Text(file, first, "comment", "\n".join(block))
            block, first = [words], line
        last = line if alone else 0
    if block:
        yield Text(file, first, "comment", "\n".join(block))


def strings(file: str, tree: ast.AST, docstrings: set[int]) -> Iterator[Text]:
    nodes = list(ast.walk(tree))
    inside: set[int] = set()
    shown: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
        elif isinstance(node, ast.keyword) and node.arg in SHOWN:
            shown.add(id(node.value))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(name, ast.Name) and name.id in SHOWN for name in targets):
                shown.add(id(node.value))
    for node in nodes:
        if id(node) in inside or id(node) in docstrings:
            continue
        text = value(node)
        if text and (id(node) in shown or (WORDS.search(text) and not SQL.search(text))):
            assert isinstance(node, ast.expr)
            spans = (node.end_lineno or node.lineno) - node.lineno
            text = text if text.count("\n") in {spans, spans + 1} else text.replace("\n", " ")
            yield Text(file, node.lineno, "string", text)


def value(node: ast.AST) -> str | None:
    """The text of a string. The values in an f-string become a word of code."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values]
        return "".join(map(str, parts))
    return None


# -- comments of scripts -----------------------------------------------------------------


def hash_comments(file: str, source: str) -> Iterator[Text]:
    block: list[str] = []
    first = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        results = re.match(r"\s*#+ ?(.*)$", line)
        if results and not TOOL_COMMENT.match(results[1]):
            first = first if block else number
            block.append(results[1].strip())
        elif block:
            yield Text(file, first, "comment", "\n".join(block))
            block = []
