"""The shapes that other programs rely on, as they are now; `python -m tests.contract.freeze`
adds what is new to the files in `frozen/`. What went away or changed is refused: additions only.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.contract.test_walls import ROOT
from tests.support import command_outputs
from tests.support.json_shapes import (
    Shape,
    added,
    broken_answer,
    broken_question,
    folded,
    of_schema,
    of_values,
    unfolded,
)
from tests.support.servedhub import ServedHub, serve
from tests.support.socketclient import SocketClient

FROZEN = Path(__file__).parent / "frozen"
SCOPE = re.compile(r"(?:Scope|or) `([a-z:]+)`")


# -- as it is now -----------------------------------------------------------------------------


def http_now(document: Mapping[str, Any]) -> dict[str, Any]:
    """Request and response of every operation, and the shape of a failure."""
    components = document["components"]["schemas"]
    results: dict[str, Any] = {"failure": {"answer": of_schema(components["Failure"], components)}}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            results[f"{method.upper()} {path}"] = _operation(operation, components)
    return dict(sorted(results.items()))


def _operation(operation: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if scopes := SCOPE.findall(operation.get("description", "")):
        shown["scopes"] = scopes
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            shown.setdefault("statuses", []).append(status)
            for media in answer.get("content", {}).values():
                shown["answer"] = of_schema(media["schema"], components)
    query = [entry for entry in operation.get("parameters", ()) if entry.get("in") == "query"]
    if query:
        shown["query"] = {
            "types": ["object"],
            "fields": {entry["name"]: of_schema(entry["schema"], components) for entry in query},
            "required": sorted(entry["name"] for entry in query if entry["required"]),
        }
    for media in operation.get("requestBody", {}).get("content", {}).values():
        shown["body"] = of_schema(media["schema"], components)
    return shown


def events_now(hub: ServedHub) -> dict[str, Any]:
    """Every event there is in both forms, and the frames of the socket."""
    listed = hub.events()
    kinds = sorted({event["name"] for event in listed})
    results = {
        f"event {name}": of_values(event for event in listed if event["name"] == name)
        for name in kinds
    }
    with SocketClient(hub.port, hub.token) as client:
        hello = client.hello(0)
        output = client.until(lambda frame: frame.get("event_id") == hub.head)
        topic = listed[-1]["scope"].get("topic_id")
        for data in ({"topic_id": topic, "sender": "s", "content_raw": "x"}, {}):
            client.send({"type": "request", "id": 1, "op": "message.create", "data": data})
        answers = [client.until(lambda frame: frame["type"] == "response")[-1] for _ in range(2)]
        client.send({"type": "rubbish"})
        error = client.until(lambda frame: frame["type"] == "error")[-1]
    envelopes = [frame for frame in output if frame.get("type") == "event"]
    for name in kinds:
        results[f"frame {name}"] = of_values(entry for entry in envelopes if entry["name"] == name)
    results |= {"frame hello_ok": of_values([hello]), "frame error": of_values([error])}
    results["frame response, done"] = of_values(answers[:1])
    results["frame response, refused"] = of_values(answers[1:])
    return dict(sorted(results.items()))


def errors_now() -> dict[str, list[str]]:
    """The statuses of every code."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    results: dict[str, set[str]] = {}
    for code, status in re.findall(r"(?m)^\| `([A-Z_]+)` \| (\d{3}) \|", page):
        results.setdefault(code, set()).add(status)
    return {code: sorted(statuses) for code, statuses in sorted(results.items())}


def everything_now(hub: ServedHub) -> dict[str, Any]:
    """The command line, HTTP, events and errors, by the name of the file they are frozen in."""
    printed = command_outputs.printed_by_all(hub)
    return {
        "cli": {name: of_values(values) for name, values in sorted(printed.items())},
        "http": http_now(hub.http.get("/api/v1/openapi.json").body),
        "events": events_now(hub),
        "errors": errors_now(),
    }


# -- and as it was promised -------------------------------------------------------------------


def frozen(name: str) -> Any:
    file = FROZEN / f"{name}.json"
    return unfolded(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def broken(name: str, promised: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What of the promised shapes does not hold any more."""
    for key, before in promised.items():
        if key not in now:
            yield f"{key}: is gone"
        elif name == "errors":
            if not set(before) <= set(now[key]):
                yield f"{key}: has another status"
        elif name == "http":
            yield from _broken_operation(before, now[key], key)
        else:
            yield from broken_answer(before, now[key], key)


def _broken_operation(before: Shape, now: Shape, at: str) -> Iterator[str]:
    if not set(before.get("statuses", ())) <= set(now.get("statuses", ())):
        yield f"{at}: succeeds with another status"
    if before.get("scopes", []) != now.get("scopes", []):
        yield f"{at}: needs another scope"
    nothing: Shape = {"types": ["null"]}
    if "answer" in before:
        yield from broken_answer(before["answer"], now.get("answer", nothing), f"{at} answers $")
    for part in ("query", "body"):
        if part in before:
            yield from broken_question(before[part], now.get(part, nothing), f"{at} {part} $")
        elif now.get(part, nothing).get("required"):
            yield f"{at}: needs a {part} now"


def unfrozen(name: str, promised: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Additions that are not frozen yet."""
    for key, there in now.items():
        if key not in promised:
            yield key
        elif name == "http":
            for part in {"answer", "query", "body"} & set(there):
                if part in promised[key]:
                    yield from added(promised[key][part], there[part], f"{key} {part}")
                else:
                    yield f"{key} {part}"
        elif name != "errors":
            yield from added(promised[key], there, key)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as hub:
        now = everything_now(hub)
    problems = [text for name in now for text in broken(name, frozen(name), now[name])]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Only additions can be frozen; see CONTRIBUTING.md", file=sys.stderr)
        return 1
    FROZEN.mkdir(exist_ok=True)
    for name, shapes in now.items():
        text = json.dumps(folded(shapes), indent=1, sort_keys=True) + "\n"
        (FROZEN / f"{name}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
