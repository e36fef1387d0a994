"""Prose that can't go stale: generated pages are compared, examples run, links followed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.declared_scopes import DECLARED_SCOPES
from doctor.all_checks import CHECKS
from tests.contract.test_walls import ROOT, tracked
from tests.support.commands import command, environment
from tests.support.hubprocess import served

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
SECONDS_MAX = 300  # a guard against hanging; pages start servers on busy machines
END = "==== end of the example ===="
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
VARIABLES = (
    "AGENTLIP_",
    "AWS_",
    "HADOOP_",
    "PR_",
    "SPARK_",
    "TASK_STATE_",
)  # prefixes of environment variables and A2A states, not codes
KINDS = ("Added", "Changed", "Deprecated", "Fixed", "Removed", "Security")


def prose() -> list[Path]:
    return sorted(tracked("*.md"))


def named(files: list[Path]) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in files]


def without_code(text: str) -> str:
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The names that headings get where Markdown is shown."""
    heads = re.findall(r"(?m)^#+ (.+)$", without_code(text))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# -- generated pages ---------------------------------------------------------------------


def test_generated_pages_are_what_the_code_says():
    done = subprocess.run(
        [sys.executable, "-m", "ops.write_docs", "--check"],
        cwd=ROOT,
        env=environment(PYTHONHASHSEED="1"),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


WRITERS = ("writes", "retopic", "attachments", "plugins/writes")


def test_every_failure_has_a_hint():
    rows = [
        line.strip("| ").split(" | ")
        for line in (REFERENCE / "errors.md").read_text().splitlines()
        if line.startswith("|")
    ]
    header: list[str] = []
    without, seen = [], 0
    for row in rows:
        if row[0] == "Code":
            header = row
        elif not row[0].startswith("---"):
            seen += 1
            if not row[header.index("Hint")].strip():
                without.append(row)
    assert seen > 100
    assert without == []


def test_every_event_that_the_hub_writes_is_on_its_page():
    files = [ROOT / "appliance" / "hub" / f"{name}.py" for name in WRITERS]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    written = set(re.findall(r'"((?:channel|topic|message)\.\w+)"', source))
    described = set(re.findall(r"(?m)^## (\S+)$", (REFERENCE / "events.md").read_text("utf-8")))
    assert written
    assert written - described == set()


def test_codes_named_in_prose_exist():
    known = set(re.findall(r"`([A-Z][A-Z_]+)`", (REFERENCE / "errors.md").read_text("utf-8")))
    for file in (REFERENCE / "protocol.md", *(DOCS / "how-to").glob("*.md"), ROOT / "README.md"):
        used = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", file.read_text(encoding="utf-8")))
        used = {code for code in used if not code.startswith(VARIABLES)}
        assert used - known == set(), file.name


def test_scopes_named_in_prose_exist():
    """Also in generated pages and in hints: `--scope NAME` has to work as printed."""
    subjects = {scope.partition(":")[0] for scope in DECLARED_SCOPES - {"admin"}}
    scope = re.compile(rf"(?<=[`\s])(?:{'|'.join(subjects)}):[a-z]+(?=[`\s@])")
    files = [*prose(), *tracked("appliance/**/*.py"), *tracked("doctor/**/*.py")]
    mentioned = {name for file in files for name in scope.findall(file.read_text())}
    assert mentioned > {"hub:read", "bus:approve", "export:delivery"}
    destinations = {"network:anna", "network:bert", "network:carl", "broker:dev"}
    assert mentioned - DECLARED_SCOPES - destinations == set()


def test_settings_named_in_prose_exist():
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    known = set()
    for section, body in re.findall(r"(?ms)^## \[(\w+)\]$(.*?)(?=^## |\Z)", page):
        known |= {f"{section}.{field}" for field in re.findall(r"(?m)^(?:# )?(\w+) =", body)}
    sections = "|".join({name.partition(".")[0] for name in known})
    known |= {check.name for check in CHECKS}  # they are written in the same way
    text = "\n".join(without_code(file.read_text(encoding="utf-8")) for file in prose())
    used = set(re.findall(rf"`((?:{sections})\.(?!sqlite3|toml|db|jsonl?\b)\w+)`", text))
    assert len(used) > 100
    assert used - known == set()


# -- links and shapes --------------------------------------------------------------------


@pytest.mark.parametrize("name", named(prose()))
def test_links_have_targets(name):
    file = ROOT / name
    broken = []
    for target in LINK.findall(without_code(file.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        known = anchors(there.read_text(encoding="utf-8")) if anchor and there.is_file() else set()
        if not there.exists() or (anchor and anchor not in known):
            broken.append(target)
    assert broken == []


def test_files_named_in_code_and_prose_exist():
    folders = "appliance|docs|doctor|examples|migrations|nix|ops|spark|tests"
    path = re.compile(rf"(?<![\w/.$~-])(?:{folders})/[a-z0-9_./-]+\.(?:md|py|sql|toml|yaml)\b")
    named = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in tracked("*.py", "*.md", "*.toml", "ops/*")
        for name in path.findall(file.read_text("utf-8"))
        if not (ROOT / name).exists() and name not in NOT_OURS
    }
    assert named == set()


# texts that are examples, and pages in the wheel
NOT_OURS = {"docs/intro.md", "docs/x.md", "docs/a-b/c_d.md"} | {
    f"doctor/pages/checks{page}.md" for page in ("", "/host")
}


def test_decisions_are_numbered_and_say_what_was_given_up():
    files = sorted((DOCS / "decisions").glob("0*.md"))
    numbers = [int(file.name[:4]) for file in files]
    assert len(set(numbers)) == len(numbers), "a number was given twice"
    for file in files:
        heads = re.findall(r"(?m)^## (.+)$", file.read_text(encoding="utf-8"))
        assert heads[:3] == ["Situation", "Choice", "What we gave up"], file.name


# -- examples ----------------------------------------------------------------------------


WITH_EXAMPLES = [
    file for file in named(prose()) if "```sh run" in (ROOT / file).read_text(encoding="utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_do_what_they_show(name, tmp_path):
    """Blocks marked `sh run`, in order, in one shell, in the workspace of a served hub.

    A block marked `output` behind one is what it prints; `…` stands for anything. One marked
    `toml settings` is the hub's agentlip.toml.
    """
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    examples = list(examples_of((ROOT / name).read_text(encoding="utf-8")))
    assert examples
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    write_files_of((ROOT / name).read_text(encoding="utf-8"), workspace)
    for kind, body in FENCE.findall((ROOT / name).read_text(encoding="utf-8")):
        if kind == "toml settings":
            (workspace / "agentlip.toml").write_text(body, encoding="utf-8")
    script = "\n".join(f"{{ {text} }} 2>&1\necho '{END}'" for text, _ in examples)
    with served(workspace):
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=workspace,
            env=environment(
                PATH=commands_in(tmp_path / "bin"), XDG_STATE_HOME=str(tmp_path / "state")
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split(END + "\n")
    for (text, wanted), got in zip(examples, printed, strict=False):
        if wanted is not None:
            assert fits(wanted, got), f"{text}\nprinted:\n{got}\nnot:\n{wanted}"


def examples_of(text: str, wanted: str = "sh run") -> list[tuple[str, str | None]]:
    """The blocks of this kind, and the output that is shown behind each."""
    blocks = FENCE.findall(text)
    following = [*blocks[1:], ("", "")]
    return [
        (body, after if mark == "output" else None)
        for (kind, body), (mark, after) in zip(blocks, following, strict=True)
        if kind == wanted
    ]


def write_files_of(text: str, workspace: Path) -> None:
    """Blocks marked `LANGUAGE file PATH` are there before the hub is served."""
    for mark, body in FENCE.findall(text):
        words = mark.split()
        if words[1:2] == ["file"]:
            path = workspace / words[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")


def fits(wanted: str, got: str) -> bool:
    pattern = ".*".join(re.escape(piece) for piece in wanted.strip().split("…"))
    return re.fullmatch(pattern, got.strip()) is not None


def commands_in(folder: Path) -> str:
    """A PATH on which our commands and this Python come first."""
    folder.mkdir()
    lines = {name: command(name) for name in ("agentlip", "agentlipd")}
    lines["python3"] = [sys.executable]
    for name, words in lines.items():
        file = folder / name
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        file.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
        file.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
