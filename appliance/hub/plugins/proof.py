"""Compares the isolation that a plugin's process reports with the kernel's report."""

from pathlib import Path

import msgspec

from appliance.hub.plugins import wire

FILTERED = "2"  # Seccomp's value in /proc/PID/status while a filter is active


def confirm(claimed: wire.Isolation, pid: int, supervisor: int) -> wire.Isolation:
    """Return `claimed` with the user that the kernel reports; no isolation if the two disagree."""
    if not Path("/proc/self/status").exists():
        return claimed  # not Linux: there is no claim that the kernel could confirm
    status = _status(pid)
    users = set(status.get("Uid", "").split())
    uid = int(users.pop()) if len(users) == 1 else None
    holds = (
        status.get("PPid") == str(supervisor)
        and uid is not None
        and claimed.user in (None, uid)
        and status.get("NoNewPrivs") == "1"
        and (not claimed.seccomp or status.get("Seccomp") == FILTERED)
        and not any(int(status.get(name, "1"), 16) for name in ("CapPrm", "CapEff"))
    )
    if not holds:
        return wire.Isolation(uid=uid)
    return msgspec.structs.replace(claimed, uid=uid, no_new_privs=True)


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}
