"""Plugins for a served appliance, and what tests ask about their processes."""

from pathlib import Path

from tests.support.until import until

MODULES = {
    "marks": """
import os, re, time
def enrich(message, config):
    text = message["content_raw"]
    if "!hang" in text:
        time.sleep(1000)
    if "!spin" in text:
        while True:
            pass
    if "!die" in text:
        os._exit(3)
    if "!raise" in text:
        raise ValueError(text)
    if "!huge" in text:
        return [{"kind": "k", "span": {"start": 0, "end": 1}, "data": {"x": "y" * 100_000_000}}]
    while "!wait" in text and not os.path.exists(config["gate"]):
        time.sleep(0.01)
    return [
        {"kind": "mark", "span": {"start": m.start(), "end": m.end()}, "data": {"word": m[0]}}
        for m in re.finditer("!.+", text)
    ]
""",
    "evil": """
import os
def enrich(message, config):
    data = config["data"]
    done = []
    for path in ("token", "db.sqlite3", "server.json", "new"):
        for mode in ("r+", "w", "a"):
            try:
                open(os.path.join(data, path), mode)
                done.append(path + " " + mode)
            except OSError:
                pass
    return [{"kind": "done", "span": {"start": 0, "end": 1}, "data": {"done": done}}]
""",
}


def settings_of(workspace, *plugins, timeout_seconds=None, **general):
    """agentlip.toml for plugins given as (name, type, source, more TOML)."""
    (workspace / "plugins").mkdir(parents=True, exist_ok=True)
    lines = ["[plugins]"]
    general.setdefault("urls", False)
    lines += [f"{name} = {str(value).lower()}" for name, value in general.items()]
    for name, type_, source, *more in plugins:
        lines += ["[[plugins.use]]", f'name = "{name}"', f'type = "{type_}"']
        if timeout_seconds is not None:
            lines.append(f"timeout_seconds = {timeout_seconds}")
        if source in MODULES:
            (workspace / "plugins" / f"{source}.py").write_text(MODULES[source])
            gate, data = workspace / "plugins" / "gate", workspace / ".agentlip"
            lines += [f'module = "plugins/{source}.py"']
            lines += [f'config = {{ gate = "{gate}", data = "{data}" }}']
        else:
            lines += [source]
        lines += more
    return "\n".join(lines) + "\n"


def enriched(hub):
    """message_id → what each event of it said, in the order of the log."""
    by_message = {}
    for event in hub.events():
        if event["name"] == "message.enriched":
            data = event["data_json"]
            by_message.setdefault(data["message_id"], []).append(data["enrichments"])
    return by_message


def plugin(hub, name="marks"):
    listed = hub.request("GET", "/api/v1/plugins")["plugins"]
    return next(row for row in listed if row["name"] == name)


def caught_up(hub, name="marks"):
    def is_caught_up():
        status = plugin(hub, name)
        return status["cursor"] == hub.head and not status["pending"] and not status["redo"]

    until(is_caught_up, 30, f"{name} has followed the log")


def children_of(pid):
    """Plugins' processes below a server."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            words = path.joinpath("cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == pid and b"plugins.child" in words:
            pids.append(int(path.name))
    return pids


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
