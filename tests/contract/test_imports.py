"""Permitted imports: the layers, the libraries' rooms, and modules that do no I/O."""

import ast
import fnmatch
import re

import grimp
import pytest

from tests.contract import layers
from tests.contract.test_walls import ROOT, parsed, tracked

# A library, and the only modules that may import it. A name ending in `.*` is a package with
# all its modules.
IMPORTERS = {
    "falcon": ["doctor.resources", "appliance.web.*", "appliance.wsgi", "appliance.*.resources"],
    "typer": ["appliance.cli*", "appliance.cli_support", "appliance.*.cli*", "doctor.cli*"],
    "gevent": [
        "appliance.kernel.*",
        "appliance.web.*",
        "appliance.wsgi",
        "appliance.server",
        "appliance.hub.pipeline",
        "appliance.hub.reading_turns",
        "appliance.child.command",
        "appliance.child.line_process",
    ],
    "gunicorn": ["appliance.web.*", "appliance.wsgi"],
    "peewee": ["appliance.*.model", "appliance.*.listings"],
    "prometheus_client": ["appliance.kernel.*", "appliance.web.*", "appliance.*.metrics"],
    "websockets": ["appliance.web.*", "appliance.sdk.*"],
    "sqlite3": [
        "appliance.kernel.*",
        "appliance.workspace.*",
        "appliance.checks.*",
        "appliance.*.checks*",  # read the rows of a store
        "appliance.busfile.*",  # works without a server
        "appliance.audit.log.file",  # the same
        "appliance.recovery.*",  # fills a whole file
        "appliance.backup.*",  # copies and compares whole files
        "appliance.*.restored",  # changes a whole file in a restore
        "appliance.*.writes",
        "appliance.*.recover",  # completes a file that a recovery fills
        "appliance.hub.event_replay",
        "appliance.hub.foreign_schema",
        "appliance.hub.fulltext",
        "appliance.hub.indexing",
        "appliance.hub.message_repair",
        "appliance.hub.repairs",
        "appliance.backup.first_data",
        "appliance.export.source",
        "appliance.sdk.*",
        "doctor.*",
    ],
    "pyarrow": [],  # by name, when a Parquet file is opened: not all have it
    "threading": [
        "appliance.kernel.*",
        "appliance.sdk.*",
        "appliance.busfile.heartbeats",  # in an agent's process, while the agent blocks
        "appliance.hub.agents.claims",  # in the program that wakes an agent, as the next ones
        "appliance.hub.agents.cli",
        "appliance.hub.agents.sources",
        "appliance.hub.agents.turn",
        "appliance.hub.agents.turn_runner",
    ],
    "asyncio": [
        "appliance.sdk.aio",
        "appliance.sdk.bus_aio",
        "appliance.sdk.courier_aio",
        "appliance.sdk.langgraph",
        "appliance.sdk.network.aio",
        "appliance.sdk.network.endpoint",
        "appliance.sdk.openai_agents",
    ],
}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("appliance", "doctor", include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("library", IMPORTERS)
def test_library_is_imported_only_by_listed_modules(graph, library):
    if library not in graph.modules:
        return
    strangers = [
        module
        for module in sorted(graph.find_modules_that_directly_import(library))
        if not any(
            fnmatch.fnmatch(module, pattern) or module == pattern.removesuffix(".*")
            for pattern in IMPORTERS[library]
        )
    ]
    assert strangers == []


def test_imports_go_down_by_the_role_of_each_file(graph):
    assert list(layers.offences(graph)) == []


def test_each_exception_allows_an_import(graph):
    assert layers.unused_exceptions(graph) == []


def test_layers_are_drawn_as_they_are_enforced():
    assert layers.drawn() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


IMPURE = {
    "appliance.kernel.store", "appliance.kernel.loop", "appliance.web", "falcon", "gevent",
    "peewee", "prometheus_client", "sqlite3",
}  # fmt: skip


def test_modules_that_call_themselves_pure_are(graph):
    """Their docstring says "Pure"; then nothing they import, however far, does I/O or waits."""
    pure = []
    for file in tracked("appliance/*.py"):
        output = ast.get_docstring(parsed(file)) or ""
        if re.search(r"\b[Pp]ure[.:]", output):
            pure.append(
                str(file.relative_to(ROOT))
                .removesuffix(".py")
                .removesuffix("/__init__")
                .replace("/", ".")
            )
    assert len(pure) > 40
    impure = {
        module: sorted(bad)
        for module in pure
        if (bad := graph.find_upstream_modules(module) & IMPURE)
    }
    assert impure == {}


def test_modules_are_not_started_from_the_current_folder():
    """`python -m` looks there first, so a repository or a workspace could replace ours: -P."""
    started = re.compile(r"executable[^\n]{0,20}[\"' ]-m\b")
    files = (ROOT / "appliance").rglob("*.py")
    modules = {file.name: started.findall(file.read_text("utf-8")) for file in files}
    unsafe = [name for name, ways in modules.items() if any("-P" not in way for way in ways)]
    assert unsafe == []


def test_architecture_page_names_packages_with_composed_listings():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = re.search(r"in each `listings.py` \(([a-z, ]+)\)", page)
    assert named is not None
    files = tracked("appliance/**/listings.py")
    assert set(named[1].split(", ")) == {file.relative_to(ROOT).parts[1] for file in files}
