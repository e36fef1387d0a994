"""The examples in Python do what they show, in the workspace of a served hub."""

import re
import subprocess
import sys

import pytest

from tests.contract.test_docs import FENCE, fits
from tests.contract.test_walls import ROOT
from tests.support.commands import environment
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

END = "==== end of the example ===="
PAGE = (ROOT / "docs" / "reference" / "sdk.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["reference/sdk.md", "how-to/agent-frameworks.md"])
def test_examples_do_what_they_show(name, tmp_path) -> None:
    blocks = FENCE.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    examples = [(body, blocks[at + 1]) for at, (kind, body) in enumerate(blocks) if "run" in kind]
    assert len(examples) >= 2
    program = f"\nprint({END!r})\n".join(body for body, _ in examples)
    with serve(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for (text, (marker, wanted)), got in zip(examples, done.stdout.split(END + "\n"), strict=True):
        assert marker == "output", text
        assert fits(wanted, got), f"{text}\nprinted:\n{got}"


def test_classes_named_on_the_page_exist() -> None:
    files = [*(ROOT / "appliance/sdk").glob("*.py"), ROOT / "appliance/hub/wire.py"]
    sources = "".join(path.read_text() for path in files)
    names = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE)) - {"ApplianceError"}
    assert names
    assert [name for name in names if f"class {name}" not in sources] == []
