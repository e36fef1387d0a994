"""The second half of P7: searching a long past, one client, every question another one."""

import json
from urllib.parse import quote

from tests.bench.client import Http, encode, one_by_one
from tests.bench.figures import Figure, Row, milliseconds, percentiles
from tests.bench.hub import floors
from tests.bench.hub.bench import Bench
from tests.bench.hub.history import PER_RUN, WORDS
from tests.bench.machine import Meter
from tests.bench.target import RowFailed

LIMIT = 50


def measure(bench: Bench, row: Row) -> None:
    """Adds its figures to P7. The target is for all questions together."""
    history, searches_count = bench.sizes.history, bench.sizes.searches
    everything: list[float] = []
    connection = Http(bench.target)
    for kind, questions in kinds(history, searches_count).items():
        requests = [
            encode(bench.target, "GET", f"/api/v1/search?q={quote(text)}&limit={LIMIT}")
            for text, _ in questions
        ]
        one_by_one(connection, requests[:5])
        with Meter(bench.target.pid) as meter:
            answers = one_by_one(connection, requests)
        for (text, count), body in zip(questions, answers.bodies, strict=True):
            _verify_result(text, count, json.loads(body))
        row.count({"searches": len(questions)})
        bench.metered(row, f"search {kind}", meter, **percentiles(answers.seconds))
        row.figures.append(Figure(f"search {kind} p99", milliseconds(answers.seconds, 0.99), "ms"))
        everything += answers.seconds
    connection.close()
    row.figures += [
        Figure("search p50", milliseconds(everything, 0.5), "ms"),
        Figure("search p99", milliseconds(everything, 0.99), "ms", below=30),
    ]
    texts = [text for each in kinds(history, searches_count).values() for text, _ in each]
    assert row.floor is not None
    row.floor["search"] = floors.newest_matches(bench.target.database, texts, LIMIT)


def kinds(history: int, searches_count: int) -> dict[str, list[tuple[str, int | None]]]:
    """Questions by kind; each with the number of messages that hold it, where it is known."""
    steps = [history * number // searches_count for number in range(searches_count)]
    word, runs = len(WORDS), history // PER_RUN
    return {
        "one number": [(f'"n={number}"', 1) for number in steps],
        "a run": [(f'"run {number % runs}"', PER_RUN) for number in steps],
        "a run, and a word of every message": [
            (f"{number % (runs - 1) + 1} run", None) for number in steps
        ],
        "a common word": [(WORDS[number % word], None) for number in range(searches_count)],
        "two common words": [
            (f"{WORDS[number % word]} {WORDS[(number // word + number + 1) % word]}", None)
            for number in range(searches_count)
        ],
        "one of two": [
            (f"{WORDS[number % word]} OR {WORDS[(number + 7) % word]}", None)
            for number in range(searches_count)
        ],
    }


def _verify_result(text: str, count: int | None, result: dict) -> None:
    messages = result["messages"]
    if not result["fts_used"]:
        raise RowFailed("the search index is missing")
    if count is not None:
        right = len(messages) == min(count, LIMIT) and result["has_more"] == (count > LIMIT)
    else:
        right = len(messages) == LIMIT and result["has_more"]
    words = [word for word in text.replace('"', " ").split() if word != "OR"]
    quantifier = any if " OR " in text else all
    if not right or not all(
        quantifier(w in each["content_raw"] for w in words) for each in messages
    ):
        raise RowFailed(f"a search for {text} found {len(messages)} messages, not all right")
