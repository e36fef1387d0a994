"""`agentlip plugin apply` on a served appliance: killed in the middle, run again, and stale."""

import subprocess
import sys

import pytest

from tests.support.commands import agentlip, environment
from tests.support.plugins import enriched, settings_of
from tests.support.servedhub import serve
from tests.support.until import until
from tests.unit.hub.plugins.test_change_file import row, write

pytestmark = pytest.mark.slow
MESSAGES = 250


def test_apply_continues_after_a_kill_and_drops_stale_results(tmp_path):
    text = settings_of(tmp_path, ("marks", "linkifier", "marks", "enabled = false"))
    with serve(tmp_path, settings=text) as hub:
        _, topic = hub.channel_with_topic("a")
        sent = {hub.send(topic, f"!word{number}")["message"]["id"]: f"!word{number}"
                for number in range(MESSAGES)}  # fmt: skip
        file = write(tmp_path, [row(*item) for item in sent.items()])
        edited = next(reversed(sent))
        hub.http.patch(f"/api/v1/messages/{edited}", {"op": "edit", "content_raw": "newer"})

        done = agentlip("plugin", "apply", str(file), "--dry-run", "--json", cwd=tmp_path)
        assert (done.json["stored"], done.json["stale"]) == (MESSAGES - 1, 1)
        assert enriched(hub) == {}

        command = [sys.executable, "-m", "appliance", "plugin", "apply", str(file)]
        running = subprocess.Popen(command, cwd=tmp_path, env=environment())
        progress = file.with_name(f".{file.name}.applied")
        until(lambda: progress.exists() or running.poll() is not None, 60, "the first batch")
        running.kill()
        running.wait(60)

        done = agentlip("plugin", "apply", str(file), "--json", cwd=tmp_path)
        assert done.code == 0, done
        assert set(enriched(hub)) == set(sent) - {edited}
        assert all(len(events) == 1 for events in enriched(hub).values())
        done = agentlip("plugin", "apply", str(file), "--json", cwd=tmp_path)
        assert (done.json["stored"], done.json["same"], done.json["stale"]) == (0, MESSAGES - 1, 1)
        assert not progress.exists()

        (tmp_path / "marks.manifest.json").write_text("{}")
        done = agentlip("plugin", "apply", str(file), cwd=tmp_path)
        assert done.code == 1
        assert "plugins.md" in done.err
