"""What all built-in plugins have in common."""

import time

import pytest

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
