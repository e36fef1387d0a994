"""Every threat to the agent network names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/relay-threats.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\| (?!Mitigation|---)", re.M)


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    made = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    return names | {each.id for targets in made for each in targets if isinstance(each, ast.Name)}


def test_every_threat_names_tests_that_exist() -> None:
    threats = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)[1:]
    assert [threat[:2] for threat in threats] == [f"{number}." for number in range(1, 8)]
    for threat in threats:
        named = TEST.findall(threat)
        assert len(named) == len(ROW.findall(threat)) >= 4, threat
        assert [test for test in named if test[1] not in functions(test[0])] == []
