"""Parses search queries and quotes them for SQLite.

    one two            both words            "one two"    the words side by side
    one OR two         either                one two OR three    (one and two) or three

`AND` is optional. Everything else, including punctuation, is text and never an FTS5 operator.
Symbols alone (`!!!`, `***`, an emoji) are not indexed and match nothing.
"""

import string
import unicodedata

import msgspec

from appliance.hub import cjk
from appliance.kernel.errors import Invalid

QUERY_CHARACTERS_MAX = 300  # fits into a request line when percent-encoded
TERMS_MAX = 32
PREFIX_CHARACTERS_MIN = 3  # a shorter word is in too many words


class SearchSyntax(Invalid):
    default_message = "invalid search query"
    default_hint = 'examples: word, "exact phrase", one OR two'


class Query(msgspec.Struct, frozen=True):
    """Alternatives, one of which must match; every text in an alternative must occur.

    A query without alternatives matches nothing.
    """

    alternatives: tuple[tuple[str, ...], ...]
    prefix: bool = False
    """The last word also matches longer words that begin with it."""

    @property
    def terms(self) -> list[str]:
        """Return all texts, in query order."""
        return [term for terms in self.alternatives for term in terms]

    @property
    def match(self) -> str:
        """Return what follows FTS5's MATCH: only strings, AND, OR and parentheses."""
        match = " OR ".join(
            f"({' AND '.join(_quote(term) for term in terms)})" for terms in self.alternatives
        )
        return f"{match[:-1]}*)" if self.prefix else match

    @property
    def match_pairs(self) -> str:
        """Return a `match` for an index with texts converted by `cjk.pairs`."""
        return " OR ".join(
            f"({' AND '.join(cjk.phrase(term) for term in terms)})" for terms in self.alternatives
        )

    def contained(self, column: str) -> tuple[str, list[str]]:
        """Return a condition that is true where every text in an alternative occurs, and its
        parameters.

        ASCII letters are compared without case. Not LIKE: its time grows with the product of both
        lengths for texts like "aaaa".
        """
        condition = " OR ".join(
            f"({' AND '.join([_CONTAINED.format(column)] * len(terms))})"
            for terms in self.alternatives
        )
        return f"({condition})", [term.translate(_LOWER) for term in self.terms]

    def maybe(self, column: str) -> tuple[str, list[str]]:
        """Return a cheap condition for ASCII texts: false only where `match` can't match.

        Non-ASCII words are ignored, because FTS5 finds `Zoe` for `Zoë`.
        """
        plain = [
            tuple(word for term in terms for word in _words(term) if word.isascii())
            for terms in self.alternatives
        ]
        return Query(tuple(plain)).contained(column) if all(plain) else ("1", [])


_CONTAINED = "instr(lower({}), ?)"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def parse(text: str, *, prefix: bool = False) -> Query:
    """Parse a query. Raises SearchSyntax for empty or too long queries, open quotes and dangling
    operators.

    With `prefix`, an unquoted last word with three or more characters also matches longer words.
    """
    if len(text) > QUERY_CHARACTERS_MAX:
        raise SearchSyntax(f"the search has more than {QUERY_CHARACTERS_MAX} characters")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise SearchSyntax("the search contains U+0000 or invalid Unicode")
    if not text.strip():
        raise SearchSyntax("the search is empty")
    if not _words(text):
        return Query(())
    alternatives: list[list[str]] = [[]]
    operator: str | None = None
    count = 0
    whole = True
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
        whole = quoted or not _may_continue(term)
    if operator:
        raise _dangling(operator)
    if count > TERMS_MAX:
        raise SearchSyntax(f"the search has more than {TERMS_MAX} words and phrases")
    searchable = tuple(
        tuple(words) for terms in alternatives if (words := [t for t in terms if _words(t)])
    )
    return Query(searchable, prefix and not whole)


def _may_continue(term: str) -> bool:
    words = _words(term)
    return bool(words) and term.endswith(words[-1]) and len(words[-1]) >= PREFIX_CHARACTERS_MIN


def _split(text: str) -> list[tuple[str, bool]]:
    """Return words and phrases in order, each with whether it was quoted."""
    pieces = text.split('"')
    if len(pieces) % 2 == 0:
        raise SearchSyntax("a quote is not closed", hint='write "exact phrase"')
    terms: list[tuple[str, bool]] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            terms.append((piece, True))
        else:
            terms += [(word, False) for word in piece.split()]
    return terms


def _dangling(operator: str) -> SearchSyntax:
    return SearchSyntax(
        f"{operator} needs a word or phrase on both sides",
        hint=f'to find the word itself, quote it: "{operator}"',
    )


def _words(term: str) -> list[str]:
    """Return FTS5's words: runs of letters and digits, including combining marks."""
    spaced = "".join(
        c if unicodedata.category(c) in _IN_WORDS or _begins_word(c) else " " for c in term
    )
    return [word for word in spaced.split(" ") if any(map(_begins_word, word))]


_IN_WORDS = ("Mn", "Mc")


def _begins_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
