"""Changed envelopes: every field, every class of characters, every type of value, every byte."""

import json
from typing import Any

from hypothesis import strategies as st

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)  # fmt: skip
CHARACTERS = st.one_of(
    st.characters(categories=["Lu", "Ll", "Nd"], max_codepoint=127),
    st.sampled_from("+/=-_.:TZ"),
    st.characters(categories=["Cc", "Zs"]),
    st.characters(min_codepoint=128, categories=["L", "N", "P", "S", "M"]),
    st.just(""),
)
CHANGES = ("character", "value", "missing", "renamed", "added", "byte", "cut", "twice")


@st.composite
def changed_envelopes(draw: Any, body: bytes) -> bytes:
    """A body that does not have the same fields as `body`, if it is JSON at all."""
    changed = _changed(draw, body, draw(st.sampled_from(CHANGES)))
    try:
        same = json.loads(changed) == json.loads(body)
    except (ValueError, RecursionError):
        same = False
    return b"{}" if same else changed


def _changed(draw: Any, body: bytes, change: str) -> bytes:
    if change in ("byte", "cut"):
        at = draw(st.integers(0, len(body) - 1))
        return body[:at] + (draw(st.binary(max_size=2)) + body[at + 1 :]) * (change == "byte")
    fields = json.loads(body)
    holder = fields["payload"] if draw(st.booleans()) else fields
    name = draw(st.sampled_from(sorted(holder)))
    if change == "character" and isinstance(holder[name], str):
        text, at = holder[name], draw(st.integers(0, len(holder[name]) - 1))
        rest = text[at + draw(st.integers(0, 1)) :]
        holder[name] = text[:at] + draw(CHARACTERS) + rest
    elif change == "missing":
        del holder[name]
    elif change == "renamed":
        holder[draw(st.sampled_from([name.upper(), f"{name} ", f"_{name}"]))] = holder.pop(name)
    elif change == "added":
        holder[draw(st.text(max_size=10))] = draw(VALUES)
    else:
        holder[name] = draw(VALUES)
    text = json.dumps(fields)
    if change == "twice":  # the last one counts
        text = json.dumps(json.loads(body))[:-1] + ", " + text[1:]
    return text.encode("utf-8", "surrogatepass")
