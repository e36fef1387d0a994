"""The rows from which the appliance is built."""

import subprocess
import sys

import pytest

import appliance
from appliance.built import Built
from appliance.composition import ROWS
from appliance.kernel.declaring_modules import import_named
from appliance.kernel.subsystem import Subsystem

ROLES = ("broker", "courier", "export", "identity", "inbox", "jobs", "mailbox", "outbox", "relay")


def test_part_that_builders_read_has_a_row():
    names = {row.name for row in ROWS}
    assert set(Built.__annotations__) - names == {"host", "subsystems"}
    assert len(names) == len(ROWS)


def test_row_of_a_subsystem_has_the_name_of_its_role():
    names = {row.name for row in ROWS if row.serves}
    import_named("subsystem", appliance)
    roles = {kind.name for kind in Subsystem.__subclasses__() if kind.role is not None}
    assert roles - names == {"mcp"}, "needs the guard, so it is built after all others"


def test_part_of_a_later_row_can_not_be_read():
    built = Built(tokens=None)
    assert built.tokens is None
    with pytest.raises(AttributeError, match="hub"):
        _ = built.hub
    with pytest.raises(AttributeError, match="another Built"):
        built.hub = None


def test_server_that_builds_nothing_has_no_role_in_memory():
    program = "import sys, appliance.server; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    roles = {f"appliance.{name}.service" for name in ROLES}
    assert not (roles | {"cryptography", "difflib", "gunicorn.config", "urllib3"}) & set(
        done.stdout.split()
    )
