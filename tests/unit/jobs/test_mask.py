"""Secrets in the output of a job: masked wherever the reads are cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from appliance.jobs.mask import BYTES_MIN, MASK, OutputMask

SECRETS = ("aabaaab", "aab-aab", "é-secret", "short", "two\nlines")
pieces = st.lists(
    st.sampled_from(
        [*(secret.encode() for secret in SECRETS), b"a", b"aab", b"aabaa", b"x", b"\n"]
    ),
    max_size=12,
)


def masked(parts):
    mask = OutputMask(SECRETS)
    return b"".join(map(mask.feed, parts)) + mask.end()


@given(pieces, st.lists(st.integers(0, 80), max_size=6))
def test_reads_may_be_cut_anywhere(parts, cuts):
    text = b"".join(parts)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    reads = [text[start:end] for start, end in pairwise(borders)]
    seen = masked(reads)
    for secret in SECRETS:
        assert len(secret) < BYTES_MIN or secret.encode() not in seen
    assert masked([bytes([byte]) for byte in text]) == seen


def test_text_without_secrets_is_not_changed_and_not_held_back():
    mask = OutputMask(SECRETS)
    assert mask.feed(b"short and aa") == b"short and "
    assert mask.feed(b" b") == b"aa b"
    assert mask.feed(b"now aabaaab.") == b"now " + MASK + b"."
    assert mask.end() == b""


def test_longer_secret_wins_over_one_inside_of_it():
    mask = OutputMask(["password", "password-of-ada", "", "  "])
    assert mask.feed(b"password-of-ada password\n") == MASK + b" " + MASK + b"\n"
