"""Merges our entries into a harness's files, and takes them out again. Pure but for `read_files`
and `write_files`.

Our hooks are recognized by the command, our MCP server by the name, our TOML by the comments
around. All other entries stay unchanged; a file in another form is refused.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files as resources
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from appliance.hub.agents.hooks.harnesses import (
    HARNESSES,
    Format,
    Harness,
    HarnessFile,
    hook_entry,
    path_of,
)
from appliance.kernel.errors import Conflict
from appliance.kernel.ownership import read_regular
from appliance.kernel.whole_file import write_whole
from appliance.sdk.mcp_clients import CLIENTS, NAME, McpServer

BYTES_MAX = 1024 * 1024
OUR_COMMAND = re.compile(rf"\b(agentlip|appliance)['\"]? agent hook ({'|'.join(HARNESSES)})\b")
BEGIN, END = "# agentlip: begin", "# agentlip: end"
_OURS = re.compile(rf"\n*^{BEGIN}$.*?^{END}$\n?", re.DOTALL | re.MULTILINE)

Json = dict[str, Any]


class HarnessFileUnknown(Conflict):
    code = "HARNESS_FILE_UNKNOWN"
    default_message = "a file of the harness has another form than expected"
    default_hint = "add the entries by hand: agentlip agent hooks install HARNESS --print"


class Wanted(Struct, frozen=True):
    """Entries to install. `words`: the hook's command; empty: take our entries out."""

    harness: Harness
    words: Sequence[str]
    command: str
    server: McpServer

    @property
    def installs(self) -> bool:
        return bool(self.words)


class FileChange(Struct, frozen=True):
    """A file's text before and after; None: there is no such file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def verb(self) -> str:
        return "removed" if self.after is None else "wrote"

    @property
    def diff(self) -> str:
        name = str(self.path)
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(old, new, name, name, n=2))


def plan_changes(wanted: Wanted, project: Path, *, user: bool) -> list[FileChange]:
    """Return the files that change. Raises HarnessFileUnknown."""
    changes = []
    for file in wanted.harness.files:
        path = path_of(file, project, user=user)
        if path is None:
            continue
        try:
            before = _read(path) if path.exists() else None
            after = _merge_file(wanted, file, path, before)
        except HarnessFileUnknown as error:
            if not wanted.installs:
                error.hint = f"remove our entries by hand: grep -n agentlip {quote(str(path))}"
            raise
        if after != before:
            changes.append(FileChange(path, before, after))
    return changes


def write_changes(changes: Sequence[FileChange]) -> None:
    """Write each file completely or not at all. A link's target is replaced, not the link."""
    for change in changes:
        path = change.path.resolve()
        if change.after is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        private = path.exists() and not path.stat().st_mode & 0o077
        write_whole(path, change.after.encode(), private=private)


def _read(path: Path) -> str:
    raw = read_regular(path, BYTES_MAX + 1)
    if len(raw) > BYTES_MAX:
        raise HarnessFileUnknown(f"{path} has more than {BYTES_MAX:,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HarnessFileUnknown(f"{path} is not UTF-8") from None


def _merge_file(wanted: Wanted, file: HarnessFile, path: Path, before: str | None) -> str | None:
    """Return the file's new text; None if the file is no longer needed."""
    try:
        if file.formats == ("plugin",):
            return plugin_text(wanted.words) if wanted.installs else None
        if file.formats == ("toml",):
            return _merge_toml(wanted, before or "") or None
        return _merge_json(wanted, file.formats, before)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, ValueError) else ""
        raise HarnessFileUnknown(f"{path} has another form than expected{reason}") from None


# -- JSON ----------------------------------------------------------------------------------------


def _merge_json(wanted: Wanted, formats: Sequence[Format], before: str | None) -> str | None:
    content: Json = json.loads(before) if before and before.strip() else {}
    if not isinstance(content, dict):
        raise ValueError("not an object")
    merged = content
    for form in formats:
        merged = MERGED[form](wanted, merged)
    if merged == content:
        return before
    if not merged:
        return None
    return json.dumps(merged, indent=_indent(before), ensure_ascii=False) + "\n"


def _indent(text: str | None) -> str | int:
    match = re.search(r"\n([ \t]+)\S", text or "")
    return match[1] if match else 2


def merge_hooks(wanted: Wanted, content: Json) -> Json:
    """Return the content with our hooks behind others, or without ours."""
    hooks = content.get("hooks", {})
    events = {name: _without_ours(groups) for name, groups in hooks.items()}
    if wanted.installs:
        for name, event in wanted.harness.events.items():
            entry = hook_entry(wanted.harness, event, wanted.command)
            events[name] = [*events.get(name, []), entry]
    kept = {name: groups for name, groups in events.items() if groups or not hooks.get(name)}
    return _put(content, "hooks", kept)


def _without_ours(groups: list[Json]) -> list[Json]:
    """Remove our hooks, and groups that have no other."""
    kept: list[Json] = []
    for group in groups:
        hooks = [hook for hook in group["hooks"] if not _is_ours(hook)]
        if len(hooks) == len(group["hooks"]):
            kept.append(group)
        elif hooks:
            kept.append({**group, "hooks": hooks})
    return kept


def _is_ours(hook: Json) -> bool:
    return OUR_COMMAND.search(str(hook.get("command", ""))) is not None


def merge_server(wanted: Wanted, content: Json) -> Json:
    """Return the content with our MCP server, or without."""
    client = CLIENTS[wanted.harness.client]
    (key,) = client.path
    servers = {name: server for name, server in content.get(key, {}).items() if name != NAME}
    if wanted.installs:
        servers[NAME] = client.entry(wanted.server)
    return _put(content, key, servers)


def _put(content: Json, key: str, value: Json) -> Json:
    """Return the content with the value in its place; without an empty one that is new."""
    if value or (key in content and not content[key]):
        return {**content, key: value}
    return {name: other for name, other in content.items() if name != key}


MERGED: dict[str, Callable[[Wanted, Json], Json]] = {"hooks": merge_hooks, "mcp": merge_server}


# -- other files ---------------------------------------------------------------------------------


def _merge_toml(wanted: Wanted, before: str) -> str:
    """Return the text with our table at its end, between comments, or without."""
    client = CLIENTS[wanted.harness.client]
    rest = _OURS.sub("\n" if _OURS.search(before) and not before.startswith(BEGIN) else "", before)
    others = tomllib.loads(rest)
    if not wanted.installs:
        return rest
    block = f"{BEGIN}\n{client.snippet(wanted.server)}\n{END}\n"
    after = f"{rest.rstrip()}\n\n{block}" if rest.strip() else block
    servers = others.get("mcp_servers", {}) | {NAME: client.entry(wanted.server)}
    if tomllib.loads(after) != {**others, "mcp_servers": servers}:
        raise ValueError(f"it already has an MCP server {NAME}")
    return after


def plugin_text(words: Sequence[str]) -> str:
    """Return opencode's plugin, with the command that it starts."""
    text = resources(__package__).joinpath("opencode.js").read_text("utf-8")
    return text.replace("__COMMAND__", json.dumps(list(words), ensure_ascii=False))
