"""Every test asserts something whatever happens, and waits for conditions instead of sleeping."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from tests.contract.test_walls import ROOT

TESTS = ROOT / "tests"
# Where the time is the subject. Everything else waits with `until`.
SLEEPS = {
    "stream/courier/test_sockets_soak.py request_health_repeatedly": "the pace of a load",
    "support/busworker.py ask": "the pace at which a client looks for the next server",
    "support/busworker.py work": "work that takes a part of a lease",
    "support/mailserver.py handle_DATA": "a server that keeps its client waiting",
    "support/served.py _wait_until_gone": "work that looks for its client now and then",
    "support/until.py until": "the polling itself",
    "unit/busfile/test_claims_processes.py crash_at_random": "the pace at which workers are killed",
    "unit/hub/plugins/conftest.py reap": "the event loop notices the end of processes",
    "unit/kernel/test_loop.py test_failed_round_is_logged_and_the_next_one_runs":
        "no round begins after the stop",
    "unit/kernel/test_pool.py test_time_limit_leaves_short_work_alone": "no timeout comes later",
    "unit/web/test_socket.py body": "the shortest pause in which the loop looks at sockets",
    "unit/web/test_socket.py test_partial_write_continues_where_it_stopped": "a buffer fills up",
}  # fmt: skip
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> dict[str, ast.Module]:
    """Only in the process that runs these tests: to parse all files takes ten seconds."""
    return {
        path.relative_to(TESTS).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(TESTS.rglob("*.py"))
        if "bench" not in path.parts
    }


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in files().items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def called(nodes: Iterable[ast.AST]) -> set[str]:
    """The last names of everything that is called below these nodes."""
    below = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))
    return {ast.unparse(call.func).rpartition(".")[2] for call in below}


@cache
def asserting() -> set[str]:
    """Functions that assert, or call one that does."""
    direct = {"raises", "fail", "AssertionError"} | {
        function.name
        for _, function in functions()
        if any(isinstance(node, ast.Assert) for node in ast.walk(function))
    }
    return direct | {function.name for _, function in functions() if called(function.body) & direct}


def has_items(iterable: ast.expr) -> bool:
    """Whether the source shows that a loop over it runs at least once."""
    if isinstance(iterable, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Constant):
        return True
    if isinstance(iterable, ast.Call):
        function = iterable.func
        if isinstance(function, ast.Attribute):  # such as `ROWS.items()`
            return has_items(function.value)
        known = bool(iterable.args) and all(map(has_items, iterable.args))
        return ast.unparse(function) == "range" or known
    return ast.unparse(iterable).rpartition(".")[2].isupper()


def asserts(body: list[ast.stmt]) -> bool:
    """Whether these statements assert something in every case."""
    return any(map(asserts_always, body))


def asserts_always(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return asserts(node.body) and asserts(node.orelse)
    if isinstance(node, ast.For):
        return has_items(node.iter) and asserts(node.body)
    if isinstance(node, ast.With | ast.AsyncWith):
        return bool(called(node.items) & asserting()) or asserts(node.body)
    if isinstance(node, ast.Try):
        return asserts(node.body + node.orelse + node.finalbody)
    if isinstance(node, FUNCTIONS | ast.ClassDef):
        return False
    return isinstance(node, ast.Assert) or bool(called([node]) & asserting())


def test_every_test_asserts_something_in_every_case() -> None:
    """What Hypothesis makes may be empty: it makes other things too."""
    assert {
        function.name
        for _, function in functions()
        if function.name.startswith("test_") and not asserts(function.body)
        if "given" not in called(function.decorator_list)
    } == set()


def test_nothing_sleeps_where_time_is_not_the_subject() -> None:
    sleeping = {
        f"{file} {function.name}"
        for file, function in functions()
        for node in own_nodes(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep")
        if not node.args or ast.unparse(node.args[0]) != "0"
    }
    assert sleeping == SLEEPS.keys()


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """All nodes below a function, without those of functions within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, FUNCTIONS):
            yield node
            yield from own_nodes(node)
