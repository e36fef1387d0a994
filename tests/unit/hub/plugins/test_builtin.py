"""What all built-in plugins have in common."""

import shutil
import subprocess
import sys
import time

import pytest

from appliance.hub.plugins import source
from appliance.hub.plugins.builtin import references, urls

NASTY = {
    "steps": "a/" * 32_000,
    "dots": "a." * 32_000,
    "opening": "https://" + "(" * 65_000,
    "closing": "https://a/" + ")" * 65_000,
    "here": "./" * 30_000 + "a.py",
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_built_ins_are_fast_for_adversarial_texts(text):
    began = time.process_time()
    urls.extract({"content_raw": text}, {})
    references.enrich({"content_raw": text}, {})
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("name", ["urls", "references"])
def test_built_in_imports_only_the_standard_library(name, tmp_path):
    """As a batch job elsewhere would be given it."""
    shutil.copy(source.BUILTIN / f"{name}.py", tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {name};"
        " assert not [one for one in sys.modules if one.startswith('appliance')]"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
