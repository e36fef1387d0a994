"""A worked example of a skill: `git.diff.request` in, `git.diff.result` out.

The skill runs in this process, not in the appliance. A trigger routes the requests of all agents
to one stream:

    [[courier.triggers]]
    id = "skill.git.diff"
    when = { type = "git.diff.request" }
    do = [{ action = "route", to = "skills/git.diff" }]

The payload is `{"from": REF, "to": REF, "paths": [...]}`. The result goes to the sender's inbox
with the request's `corr`. The result's id is derived from the request's id, so a request that is
delivered twice is answered once.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

from appliance.cli_support import Session, note
from appliance.sdk.courier import Consumer, Producer, envelope
from appliance.sdk.discovery import find_hub

DIFF_BYTES_MAX = 128 * 1024
GIT_SECONDS_MAX = 20.0
_ref = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/~^@{}-]{0,199}").fullmatch


def serve_git_diff(session: Session, repository: Path, stream: str, exit_after: int | None) -> None:
    def locate() -> Any:
        return find_hub(session.workspace)

    handled = 0
    with Producer(locate) as producer, Consumer(locate, stream, credit=1, say=note) as consumer:

        def answer(request: dict[str, Any]) -> None:
            nonlocal handled
            producer.send(*result_for(request, repository))
            handled += 1
            if handled == exit_after:
                consumer.stop()

        consumer.run(answer)


def result_for(request: dict[str, Any], repository: Path) -> tuple[str, dict[str, Any]]:
    """Return the answer's stream, and the answer."""
    sender = str(request.get("from") or "unknown")
    agent = re.sub(r"/(outbox|inbox)$", "", sender)
    to = f"{agent if '/' in agent else f'agents/{agent}'}/inbox"
    payload = request.get("payload")
    result = envelope(
        "git.diff.result",
        diff(payload if isinstance(payload, dict) else {}, repository),
        "skills/git.diff",
        id=f"r-{request['id']}",
        corr=request.get("corr"),
        refs=[request["id"]],
    )
    return to, result


def diff(payload: dict[str, Any], repository: Path) -> dict[str, Any]:
    """Return the diff, or an error. Nothing in the request can become a Git option."""
    refs = [str(payload[name]) for name in ("from", "to") if payload.get(name)]
    paths = [str(path) for path in payload.get("paths") or []][:100]
    if not all(_ref(ref) for ref in refs):
        return {"ok": False, "error": "from and to must be commit names"}
    command = ["git", "-C", str(repository), "diff", "--no-ext-diff", "--no-textconv", "--no-color"]
    try:
        done = subprocess.run(
            [*command, *refs, "--", *paths],
            capture_output=True,
            check=False,
            timeout=GIT_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ok": False, "error": type(error).__name__}
    if done.returncode != 0:
        return {"ok": False, "error": done.stderr.decode("utf-8", "replace")[:500]}
    text = done.stdout[:DIFF_BYTES_MAX].decode("utf-8", "replace")
    return {"ok": True, "diff": text, "truncated": len(done.stdout) > DIFF_BYTES_MAX}
