"""The first job of docs/how-to/spark.md does what the page prints, here without its container, and
other engines read its tables."""

import re
import subprocess
import sys

from tests.contract.test_docs import FENCE
from tests.spark import engine
from tests.support.commands import ROOT, environment
from tests.support.servedhub import serve

SECONDS_MAX = 900  # a session of Spark on a busy machine
COMMAND = """import sys
if sys.argv[1] == "export":  # `ops/up` installs no pyarrow
    sys.modules["pyarrow"] = None
from appliance.cli import agentlip; agentlip()"""


def blocks(title):
    """The commands and the programs of a section, in their order."""
    page = (ROOT / "docs/how-to/spark.md").read_text(encoding="utf-8")
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    return FENCE.findall(section)


def without_container(text, workspace):
    """The same commands with `spark/run.py` on the mounted directories."""
    text = text.replace("\\\n", " ").replace(" && sudo chown 185 lake", "")
    job = f'"{sys.executable}" "{ROOT}/spark/run.py"'
    text = re.sub(r"docker run [^\n]*agentlip-spark:local", lambda _: job, text)
    for name in ("export", "lake"):
        text = text.replace(f"/data/{name}", str(workspace / name))
    return text


def test_first_job_runs_as_printed(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with serve(workspace) as hub:
        _, topic = hub.channel_with_topic("general")
        for text in ("one", "two", "three"):
            hub.send(topic, text)
    (_, first), (_, program), (_, report), *_ = blocks("Run a first job")
    programs = [
        program,
        *(text for language, text in blocks("Read the tables") if language == "python"),
    ]
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "agentlip").write_text(f"#!{sys.executable}\n{COMMAND}\n")
    (bin_ / "agentlip").chmod(0o755)
    path = f"{bin_}:{environment()['PATH']}"
    quick, printed = engine.configure(tmp_path), []
    for arguments in (
        ["bash", "-eu", "-c", without_container(first, workspace)],
        ["bash", "-eu", "-c", report],
        *([sys.executable, "-c", program] for program in programs),
    ):
        done = subprocess.run(
            arguments, cwd=workspace, env=environment(PATH=path, **quick),
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
    assert printed[1].splitlines()[2].startswith("3 ")
    counted = ["t tester 3\n", "3 messages\n", "[('tester', 3)]\n", "{'tester': 3}\n"]
    assert printed[2:] == counted
