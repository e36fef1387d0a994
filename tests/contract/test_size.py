"""`ops/size`: what counts as a line of code, and no package above its limit."""

import subprocess

import pytest

from ops.size import BUDGETS, CEILINGS, GENERATED, OTHER, count, package_of, sizes


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ('"""A module."""\n\nimport os\n\nX = 1  # with a comment\n', 1),
        ("from a import (\n    b,\n    c,\n)\n# a comment\nX = (\n    1,\n)\n", 3),
        ('def f():\n    """Words\n    and more."""\n    return """\n  text\n"""\n', 4),
        ("class A:\n    'Words.'\n\n    x = 1\n", 2),
        ("async def f():\n    import os\n\n    # nothing\n    return os\n", 2),
    ],
)
def test_line_counts_if_it_has_code(text, lines):
    assert count(text) == lines


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("appliance/hub/plugins/runner.py", "hub"),
        ("appliance/recovery/page.py", "workspace, recovery, upgrade"),
        ("doctor/run.py", "doctor"),
        ("appliance/checks/context.py", "doctor"),
        ("appliance/hub/checks.py", "doctor"),
        ("spark/session.py", "spark"),
        ("tests/hub/test_spark.py", "tests"),
        ("appliance/integrations/jobs_parts.py", "jobs"),
        ("appliance/jobs/checks.py", "jobs"),
        ("tests/http/monitoring/test_metrics.py", "tests"),
        ("appliance/notify/problems.py", "monitoring"),
        ("ops/monitoring/rules.py", "monitoring"),
        ("appliance/sdk/network/folder.py", "network, relay"),
        ("appliance/sdk/http.py", "sdk"),
        ("appliance/app.py", OTHER),
        ("appliance/mcp/tools.py", OTHER),
        ("ops/size.py", OTHER),
    ],
)
def test_every_file_belongs_to_a_row(path, row):
    assert package_of(path) == row


def test_ceiling_goes_once_the_budget_is_reached():
    assert [name for name, ceiling in CEILINGS.items() if ceiling <= BUDGETS[name]] == []


def test_a_generated_module_does_not_count(tmp_path):
    (tmp_path / "people.py").write_text("x = 1\n")
    (tmp_path / "made.py").write_text(f'{GENERATED} x by `just y`."""\n\nx = 1\n')
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        subprocess.run(command, cwd=tmp_path, check=True)
    assert sizes(tmp_path).total() == 1
