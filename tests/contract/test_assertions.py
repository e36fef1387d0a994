"""Tests assert something in every case, and wait for conditions instead of sleeping."""

import ast
import re

from tests.contract.test_walls import ROOT, parsed

TESTS = ROOT / "tests"
SLEEP = re.compile(r"(?m)^ +(?:await )?(?:time|gevent|asyncio)\.sleep\((?!0\))")
# Where the time is the subject. Everything else waits with `until`.
SLEEPING = {
    "support/woken_agents.py": "turns that take a while",
    "sdk/test_gevent.py": "a greenlet that must run meanwhile",
    "support/bus_agents.py": "the pace of a client, and work that takes a part of a lease",
    "support/mailserver.py": "a server that keeps its client waiting",
    "support/plugins.py": "a plugin that hangs",
    "unit/busfile/test_claims_processes.py": "the pace at which workers are killed",
    "unit/hub/plugins/conftest.py": "the event loop notices the end of processes",
    "unit/hub/plugins/test_sandbox_hostile.py": "programs that wait for a signal",
    "unit/kernel/test_loop.py": "no round begins after the stop",
    "unit/web/test_socket.py": "the loop looks at sockets, and a buffer fills up",
}
CONDITIONAL = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler
SOME = ("range", "enumerate", "zip", "items", "permutations", "product")


def test_nothing_sleeps_where_time_is_not_the_subject() -> None:
    files = (file for file in TESTS.rglob("*.py") if "bench" not in file.parts)
    sleeping = {str(file.relative_to(TESTS)) for file in files if SLEEP.search(file.read_text())}
    assert sleeping == SLEEPING.keys()


def test_no_test_has_all_assertions_under_a_condition() -> None:
    assert [
        f"{file.relative_to(TESTS)}: {test.name}"
        for file in sorted(TESTS.rglob("test_*.py"))
        for test in ast.walk(parsed(file))
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        if any(isinstance(node, ast.Assert) for node in ast.walk(test))
        if not any(always_asserts(statement, test) for statement in test.body)
    ] == []


def always_asserts(node: ast.AST, test: ast.FunctionDef) -> bool:
    """Whether this statement asserts something each time the test runs."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return name.startswith(("raises", "fail", "assert_"))
    if isinstance(node, ast.If):
        branches = [node.body, node.orelse]
        return all(any(always_asserts(each, test) for each in branch) for branch in branches)
    if isinstance(node, CONDITIONAL) and not (isinstance(node, ast.For) and runs(node.iter, test)):
        return False
    return isinstance(node, ast.Assert) or any(
        always_asserts(child, test) for child in ast.iter_child_nodes(node)
    )


def runs(values: ast.AST, test: ast.FunctionDef) -> bool:
    """Whether a loop over them visibly has a round: they are written in the test, a constant, or an
    argument of the test."""
    if isinstance(values, ast.Call):
        parts = [*values.args, *ast.iter_child_nodes(values.func)]
        name = ast.unparse(values.func).rpartition(".")[2]
        return name == "range" or (name in SOME and any(runs(part, test) for part in parts))
    if isinstance(values, ast.Name | ast.Attribute):
        name = ast.unparse(values)
        assigned = re.findall(rf"(?m)^ +{re.escape(name)} = [(\[{{][^)\]}}]", ast.unparse(test))
        given = {argument.arg for argument in test.args.args}
        return bool(assigned) or name in given or name.rpartition(".")[2].isupper()
    return bool(getattr(values, "elts", getattr(values, "keys", ())))
