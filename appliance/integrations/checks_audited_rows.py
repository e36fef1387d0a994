"""Compares valid tokens and mesh members with the audit log."""

import re
import shlex
from collections.abc import Iterator
from math import inf
from typing import Any

import msgspec

from appliance.audit.log import file
from appliance.audit.log.record import redact
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context

_ABOUT = re.compile("token|member|sign-in|backup restore")
_TOKENS = """
SELECT '', id, 'token ' || id, 'agentlip token revoke', iif(id = 'server', NULL, name), created_ms,
 json_object('name', name, 'scopes', iif(json_valid(scopes), json(scopes), scopes),
  'senders', iif(json_valid(senders), json(senders), senders),
  'expires_at', strftime('%Y-%m-%dT%H:%M:%fZ', expires_ms / 1000.0, 'unixepoch'))
FROM tokens WHERE revoked_ms IS NULL ORDER BY created_ms"""
_MEMBERS = """
SELECT s.slug, m.pubkey, 'member ' || m.name || ' of mesh ' || s.slug,
 'agentlip mesh revoke-member ' || s.slug, iif(EXISTS (SELECT 1 FROM member AS f
  WHERE f.mesh_id = m.mesh_id AND f.successor = m.pubkey), NULL, m.pubkey), m.added_ms, '{}'
FROM member AS m JOIN mesh AS s ON s.id = m.mesh_id
WHERE m.revoked_ms IS NULL ORDER BY m.added_ms"""
_ROWS = {("auth", "tokens", "sessions"): _TOKENS, ("broker", "member", "mesh"): _MEMBERS}
"""By store and tables: mesh and key, subject, command that revokes the row, what a request named
(NULL: no request needed), when the row was added, and what the row keeps."""
_decode = msgspec.json.Decoder().decode


class _Log:
    """The audit log's contents: each row's first state, the revoked rows, and the requests' names.
    `since_ms`: the time from which the log has every request."""

    def __init__(self, context: Context) -> None:
        self.added: dict[tuple[str, str], dict[str, Any]] = {}
        self.revoked: set[tuple[str, str]] = set()
        self.requested: set[str | None] = {None}
        self.since_ms = inf
        meshes: dict[int | None, str] = {}
        for number, record in enumerate(file.records(file.file_in(context.datadir.workspace))):
            detail = _decode(record.detail)
            given = detail.get("path", {}) | (detail.get("request") or {})
            if not number or "omitted_bytes" in given:  # a request that was too large
                self.since_ms = inf if number else record.at_ms
            if not _ABOUT.search(record.act):
                continue
            if record.act.endswith("backup restore"):  # perhaps with --revive
                self.revoked.clear()
            if record.began is None:
                meshes[record.seq] = given.get("mesh", "")
                self.requested |= {given.get("name"), given.get("pubkey")}
            reply = detail.get("reply") or detail.get("answer")
            row = isinstance(reply, dict) and (reply.get("token") or reply.get("member"))
            if record.phase == "done" and isinstance(row, dict):
                key = (meshes.get(record.began, ""), row.get("id") or row.get("pubkey", ""))
                if record.act.endswith("sign-in/complete"):  # each gives the present rights
                    self.added[key] = row
                self.added.setdefault(key, row)
                if row.get("state") == "revoked":
                    self.revoked.add(key)

    def find_problem(self, key: tuple[str, str], given: str, added_ms: int, kept: str) -> str:
        """Return how another program changed a row; "" if it did not."""
        if key in self.revoked:
            return "it was revoked, and is valid again"
        if (added := self.added.get(key)) is None:
            covered = given not in self.requested and self.since_ms <= added_ms
            return "the audit log has no request for it" if covered else ""
        changed = [
            name for name, value in _decode(kept).items() if redact(value) != added.get(name)
        ]
        return f"changed since it was created: {', '.join(changed)}" if changed else ""


def _compare(context: Context) -> Iterator[Finding]:
    try:
        log = _Log(context)
    except file.AuditUnavailable:  # reported by another check
        return
    for tables, sql in _ROWS.items():
        for connection in context.with_tables(*tables):
            for mesh, key, subject, command, *row in connection.execute(sql):
                if problem := log.find_problem((mesh, key), *row):
                    hint = f"{command} {shlex.quote(key)}"
                    yield DIFFERS.finding(subject, problem, hint)


DIFFERS = Problem("differs", Severity.ERROR)
CHECKS = (
    Check(
        name="audit.rows", inspects="tokens and mesh members match the audit log",
        cost=Cost.EXPENSIVE, find=_compare, problems=(DIFFERS,),
    ),
)  # fmt: skip
