"""Checks the texts that people read: proselint's rules that suit technical prose, and our own.

    python -m tests.contract.prose PATH…     file:line: text → rule, suggestion; exit 1 if any

Without a path it checks the whole repository. Write wire names in backticks: code is not checked.
"""

import argparse
import bisect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from proselint.checks import __register__ as PROSELINT
from proselint.registry.checks import Check

from tests.contract.prose_rules import RULES, Rule, vocabulary
from tests.contract.prose_texts import Text, masked, texts
from tests.contract.test_walls import ROOT, tracked

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
PARAGRAPH_WORDS_MAX = 80  # docs/, README and CONTRIBUTING
# Their examples are what the rules forbid; fixtures and names from elsewhere are not our prose.
EXEMPT = (
    "tests/contract/prose_rules.py",
    "docs/reference/glossary.md",
    "tests/contract/frozen/",
    "LICENSE",
)


class Finding(NamedTuple):
    file: str
    line: int
    text: str
    rule: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text} → {self.rule}, {self.suggestion}"


BINARY = {".png", ".ico", ".woff2", ".xz"}
"""Suffixes of files without text."""


def findings(files: Iterable[Path]) -> list[Finding]:
    every = [
        text
        for file in sorted(files)
        if not (name := file.relative_to(ROOT).as_posix()).startswith(EXEMPT)
        and file.suffix not in BINARY
        for text in texts(name, file.read_text(encoding="utf-8"))
    ]
    return hits(every)


def hits(every: Sequence[Text]) -> list[Finding]:
    return sorted({*by_our_rules(every), *by_proselint(every), *long_paragraphs(every)})


# -- our rules ---------------------------------------------------------------------------


@cache
def compiled() -> list[tuple[Rule, re.Pattern[str]]]:
    words = vocabulary(GLOSSARY.read_text(encoding="utf-8")) if GLOSSARY.exists() else ()
    return [(rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in (*RULES, *words)]


def by_our_rules(every: Sequence[Text]) -> Iterator[Finding]:
    for text in every:
        plain = masked(text.text)
        line = plain.replace("\n", " ")
        for rule, pattern in compiled():
            if (rule.kinds and text.kind not in rule.kinds) or text.file.startswith(rule.exempt):
                continue
            for match in pattern.finditer(line):
                yield finding(text, match.start(), match.end(), rule.name, rule.suggestion)


def finding(text: Text, start: int, end: int, rule: str, suggestion: str) -> Finding:
    begin = start + len(text.text[start:end]) - len(text.text[start:end].lstrip())
    shown = text.text[max(0, start - 25) : end + 35].replace("\n", " ").strip()
    return Finding(text.file, text.line_at(begin), shown, rule, suggestion)


def long_paragraphs(every: Sequence[Text]) -> Iterator[Finding]:
    for text in every:
        words = len(text.text.split())
        if text.kind == "paragraph" and words > PARAGRAPH_WORDS_MAX:
            advice = f"{words} words: at most {PARAGRAPH_WORDS_MAX}; split it, or use a list"
            yield finding(text, 0, 40, "long-paragraph", advice)


# -- proselint ---------------------------------------------------------------------------

# Checks of proselint that misfire on technical prose, and why.
OFF = {
    "archaism": "finds `for ever` in `for every`; our own rule has what we need",
    "cliches.misc.write_good": "`in a word` is about memory here",
    "dates_times": "numbers after `from` are not dates",
    "industrial_language.chatspeak": "B4 is the name of a step",
    "lexical_illusions": "joins texts that stand apart; our own rule is `repeated-word`",
    "misc.illogic": "finds `more than a limit all` in `more than a limit allows`",
    "misc.preferred_forms": "`sans-serif` is CSS",
    "redundancy.misc.after_the_deadline": "a point in time is what a backup has",
    "restricted": "words outside of the thousand most usual ones",
    "spelling.consistency": "compares all files at once; CSS and libraries are American",
    "typography": "straight quotes and three dots are code",
    "uncomparables": "reads over the end of a clause: `more only adds latency`",
}
# Suggestions of proselint that help nobody here.
INSTEAD = {"weasel_words.very": "leave it out, or give the number"}


@cache
def checks() -> list[Check]:
    return [check for check in PROSELINT if not check.path.startswith(tuple(OFF))]


def by_proselint(every: Sequence[Text]) -> Iterator[Finding]:
    """All texts in one pass: a pass costs more than its text."""
    prose = [text for text in every if text.kind != "test"]
    whole = "\n\n".join(masked(text.text) for text in prose)
    starts = list(accumulate((len(text.text) + 2 for text in prose), initial=0))
    for check in checks():
        for result in check.check_with_flags(whole):
            index = bisect.bisect_right(starts, result.span[0]) - 1
            text = prose[index]
            start, end = (position - starts[index] for position in result.span)
            suggestion = INSTEAD.get(check.path) or " ".join(result.message.split())
            yield finding(text, start, end, check.path, suggestion)


# -- command line ------------------------------------------------------------------------


def named(paths: Sequence[str]) -> list[Path]:
    """The repository's files at or below these paths."""
    wanted = [Path(path).resolve() for path in paths]
    return [
        file
        for file in tracked()
        if not wanted or any(file == path or path in file.parents for path in wanted)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", metavar="PATH")
    shown = findings(named(parser.parse_args().paths))
    print(*shown, sep="\n", end="\n" if shown else "")
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
