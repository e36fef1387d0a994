"""Metrics have names by one rule: agentlip, the package that counts, what it counts, the unit."""

import re

from tests.contract.test_walls import tracked

PREFIXES = {
    "kernel": ("feed", "log", "loop", "store"),
    "mailbox": ("network",),
    "monitoring": ("build", "doctor"),
    "operations": ("notify",),
    "web": ("http", "socket", "unsent"),
}
"""What a package counts that has no subject of its own; the others use their own names."""
MADE = re.compile(r'\b(counter|gauge|histogram)\(\s*"(\w+)"')
UNITS = {
    "counter": r"_total$",
    "histogram": r"_(seconds|bytes|jobs)$",
    "gauge": r"(?<!_total)(?<!_count)$",
}


def made() -> list[tuple[str, str, str]]:
    """(package, type, name without agentlip_) of every metric in the code."""
    rows = []
    for file in tracked("appliance/**.py") + tracked("doctor/**.py"):
        package = "doctor" if "doctor" in file.parts else file.parent.name
        rows += [(package, kind, name) for kind, name in MADE.findall(file.read_text())]
    return rows


def test_name_begins_with_the_package_that_counts_and_ends_with_a_unit():
    metrics = made()
    assert len(metrics) > 100
    for package, kind, name in metrics:
        assert name.split("_")[0] in PREFIXES.get(package, (package,)), name
        assert re.search(UNITS[kind], name), name
