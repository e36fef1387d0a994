"""Indexes and searches Chinese, Japanese and Korean text, without spaces between words.

FTS5's tokenizer makes one token from adjacent characters in these scripts. This module makes
overlapping pairs (bigrams, as in Lucene's CJKAnalyzer):

    東京都   →   東京 京都 都          a text in the index
    東京     →   "東京"                a search term: pairs as a phrase
    京       →   "京"*                 a single character: the first in a pair

Other text stays unchanged, so a single index serves mixed texts.
"""

import re
import unicodedata

# Kana, Han, Hangul and Bopomofo: Unicode blocks, without punctuation.
_RUN = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff]+"
)
_WORD = re.compile(r"[^\W_]")


def contains(text: str) -> bool:
    return not text.isascii() and _RUN.search(text) is not None


def pairs(text: str) -> str:
    """Return `text` in index form: each run as pairs, followed by the last character."""
    return _RUN.sub(lambda run: _pairs(run[0], closed=False), unicodedata.normalize("NFKC", text))


def phrase(term: str) -> str:
    """Return the FTS5 phrase that finds `term` in the output of `pairs`."""
    text = unicodedata.normalize("NFKC", term)
    pieces, prefix, end = [], False, 0
    for run in _RUN.finditer(text):
        last = _WORD.search(text, run.end()) is None
        pieces += [text[end : run.start()], _pairs(run[0], closed=last and len(run[0]) > 1)]
        prefix = last and len(run[0]) == 1
        end = run.end()
    pieces.append(text[end:])
    return '"' + "".join(pieces).replace('"', '""') + ('"*' if prefix else '"')


def _pairs(run: str, closed: bool) -> str:
    """Return a run as pairs. `closed`: leave out the single last character, because the run may
    continue."""
    last = len(run) - 1 if closed else len(run)
    return f" {' '.join(run[index : index + 2] for index in range(last))} "
