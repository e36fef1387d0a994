"""What a person types into a search, understood once and said to SQLite safely.

    one two            both words            "one two"    the words side by side
    one OR two         either                one two OR three    (one and two) or three

`AND` may be written. All else, punctuation too, is text: it can't be an operator of FTS5,
whatever it is made of. Symbols alone (`!!!`, `***`, an emoji) are in no index: they find nothing.
"""

import string
import unicodedata

import msgspec

from appliance.hub import cjk
from appliance.kernel.errors import Invalid

QUERY_CHARACTERS_MAX = 1000
TERMS_MAX = 32


class SearchSyntax(Invalid):
    sentence = "the search can't be understood"
    advice = 'for instance: word, "exact phrase", one OR two'


class Query(msgspec.Struct, frozen=True):
    """Alternatives of which one must hold; each is a list of texts that must all occur.

    Without alternatives nothing matches.
    """

    alternatives: tuple[tuple[str, ...], ...]

    @property
    def terms(self) -> list[str]:
        """All texts, in the order in which they were typed."""
        return [term for terms in self.alternatives for term in terms]

    @property
    def match(self) -> str:
        """The right side of FTS5's MATCH: nothing but strings, AND, OR and brackets."""
        return " OR ".join(
            f"({' AND '.join(_quoted(term) for term in terms)})" for terms in self.alternatives
        )

    @property
    def match_pairs(self) -> str:
        """As `match`, for an index of what `cjk.pairs` made of the texts."""
        return " OR ".join(
            f"({' AND '.join(cjk.phrase(term) for term in terms)})" for terms in self.alternatives
        )

    def contained(self, column: str) -> tuple[str, list[str]]:
        """A condition that holds where every text of an alternative occurs; its parameters.

        Letters of ASCII are compared without case. Not LIKE: that takes the product of the two
        lengths for texts like "aaaa".
        """
        each = " OR ".join(
            f"({' AND '.join([_CONTAINED.format(column)] * len(terms))})"
            for terms in self.alternatives
        )
        return f"({each})", [term.translate(_LOWER) for term in self.terms]

    def maybe(self, column: str) -> tuple[str, list[str]]:
        """Cheap to ask of a text of ASCII characters: is it possible that `match` finds it?

        Words beyond ASCII say nothing here: FTS5 finds `Zoe` for `Zoë`.
        """
        plain = [
            tuple(word for term in terms for word in _words(term) if word.isascii())
            for terms in self.alternatives
        ]
        return Query(tuple(plain)).contained(column) if all(plain) else ("1", [])


_CONTAINED = "instr(lower({}), ?)"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def parse(text: str) -> Query:
    """Raises SearchSyntax: nothing, an open quote, an operator without its sides, too much."""
    if len(text) > QUERY_CHARACTERS_MAX:
        raise SearchSyntax(f"a search has at most {QUERY_CHARACTERS_MAX} characters")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise SearchSyntax("a search is valid Unicode without U+0000")
    if not text.strip():
        raise SearchSyntax("the search is empty")
    if not _words(text):
        return Query(())
    alternatives: list[list[str]] = [[]]
    operator: str | None = None
    count = 0
    for term, quoted in _split(text):
        if not quoted and term in ("AND", "OR"):
            if operator or count == 0:
                raise _dangling(term)
            operator = term
            continue
        if operator == "OR":
            alternatives.append([])
        operator = None
        count += 1
        alternatives[-1].append(term)
    if operator:
        raise _dangling(operator)
    if count > TERMS_MAX:
        raise SearchSyntax(f"a search has at most {TERMS_MAX} words and phrases")
    kept = tuple(
        tuple(found) for terms in alternatives if (found := [t for t in terms if _words(t)])
    )
    return Query(kept)


def _split(text: str) -> list[tuple[str, bool]]:
    """Words and quoted phrases in order; True with those that were quoted."""
    pieces = text.split('"')
    if len(pieces) % 2 == 0:
        raise SearchSyntax("a quote is not closed", hint='write "exact phrase"')
    found: list[tuple[str, bool]] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            found.append((piece, True))
        else:
            found += [(word, False) for word in piece.split()]
    return found


def _dangling(operator: str) -> SearchSyntax:
    return SearchSyntax(
        f"{operator} stands between two words or phrases",
        hint=f'to find the word itself, quote it: "{operator}"',
    )


def _words(term: str) -> list[str]:
    """What FTS5 takes for words: runs of letters and digits, with the marks on them."""
    spaced = "".join(
        c if unicodedata.category(c) in _IN_WORDS or _begins_word(c) else " " for c in term
    )
    return [word for word in spaced.split(" ") if any(map(_begins_word, word))]


_IN_WORDS = ("Mn", "Mc")


def _begins_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
