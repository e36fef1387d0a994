"""`agentlip.sdk` exports the same names to programs and to type checkers, each loaded when used."""

import ast
import subprocess
import sys
from pathlib import Path

import appliance.sdk

HEAVY = {"appliance.sdk.client", "appliance.sdk.aio", "appliance.sdk.courier", "websockets"}


def test_every_name_for_type_checkers_is_exported_and_loads() -> None:
    tree = ast.parse(Path(appliance.sdk.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert sorted(alias.name for node in imports for alias in node.names) == sorted(
        appliance.sdk.__all__
    )
    for node in imports:
        for alias in node.names:
            assert getattr(appliance.sdk, alias.name).__module__ == node.module


def test_importing_the_package_loads_no_client() -> None:
    program = f"import sys, appliance.sdk.discovery; print({HEAVY!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.stdout == b"set()\n", done.stderr
