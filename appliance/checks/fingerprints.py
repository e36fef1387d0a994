"""Find messages that were changed after acceptance: their fingerprints no longer match."""

from collections.abc import Iterable, Iterator
from typing import Any

from appliance.checks.check import COPY, Finding, Problem
from appliance.mesh.fingerprint import matches


def find_altered(
    rows: Iterable[tuple[Any, ...]], problem: Problem, subject: str, hint: str = COPY
) -> Iterator[Finding]:
    """Find rows that differ from their fingerprint. A row has its name, the fingerprint, and the
    fingerprinted values: see `of_stored`. Subject and hint have the name as `{0}`."""
    message = "the message was changed after its acceptance: the fingerprint doesn't match"
    for name, digest, *stored in rows:
        if not matches(digest, *stored):
            yield problem.finding(subject.format(name), message, hint.format(name))
