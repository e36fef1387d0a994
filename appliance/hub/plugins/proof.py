"""What a plugin's process told of its isolation, held against what the kernel says of it."""

from pathlib import Path

import msgspec

from appliance.hub.plugins import wire

FILTERED = "2"  # of Seccomp in /proc/PID/status: calls go through a filter


def confirmed(told: wire.Isolation, pid: int, supervisor: int) -> wire.Isolation:
    """`told`, with the user that the kernel names. Where the two differ, nothing is claimed."""
    if not Path("/proc/self/status").exists():
        return told  # not Linux: nothing was claimed that the kernel could confirm
    said = _status(pid)
    users = set(said.get("Uid", "").split())
    uid = int(users.pop()) if len(users) == 1 else None
    holds = (
        said.get("PPid") == str(supervisor)
        and uid is not None
        and told.user in (None, uid)
        and said.get("NoNewPrivs") == "1"
        and (not told.seccomp or said.get("Seccomp") == FILTERED)
        and not any(int(said.get(name, "1"), 16) for name in ("CapPrm", "CapEff"))
    )
    if not holds:
        return wire.Isolation(uid=uid)
    return msgspec.structs.replace(told, uid=uid, no_new_privs=True)


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}
