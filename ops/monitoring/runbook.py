"""Renders the runbook: a section for each alert in slo.toml."""

from collections.abc import Iterator

from ops.monitoring.rules import BURN, CONTENT, PREFIX, Row

HEAD = """\
# Runbook

<!-- Written by `just monitoring` from ops/monitoring/slo.toml. Not edited by hand. -->

Each alert in the shipped rules has a section here, to which the alert's `runbook_url`
links. Run the command on the appliance's machine, in the folder that contains `.agentlip`.
[Monitor an appliance](monitor.md) shows how to install the rules."""

BURNING = """\
## {name}

Critical or warning, by how fast an objective's error budget is used up:

{objectives}

A budget is for 30 days. Each alert looks at a long window, so that few errors fire nothing, and at
a short one, so that the alert resolves soon after the errors end. With fewer events than listed, an
objective does not fire, for example on an idle appliance with only probes and background loops.

{windows}

Find the reason in the subsystem's dashboard: request errors come from full or slow disks, suspended
stores, or defects, which the log has.

```sh
agentlip doctor
```"""


def page() -> str:
    sections = [_section(row) for row in CONTENT["alert"]]
    return "\n\n".join([HEAD, *sections, _burning()]) + "\n"


def _section(row: Row) -> str:
    return "\n\n".join(_parts(row))


def _parts(row: Row) -> Iterator[str]:
    yield f"## {PREFIX}{row['name']}"
    limits = row.get("limits", {})
    levels = [f"{severity} from {limit}" for severity, limit in limits.items()]
    facts = [row["group"], *(levels or [row["severity"]])]
    if "threshold" in row:
        facts.append(f"threshold {row['threshold']} in section 6.5, hub specification")
    yield "Subsystem " + ", ".join(facts) + "."
    yield row["about"]
    commands = row["action"].split(", then ")
    yield "```sh\n" + "\n".join(commands) + "\n```"
    wait = f"for {row['for']} " if row.get("for") else ""
    yield f"The alert fires if the following query has a result {wait}in Prometheus:"
    yield f"```promql\n{row['expr']}\n```"


def _burning() -> str:
    burn = CONTENT["burn"]
    objectives = [
        f"- `{objective['name']}`: {100 * objective['target']:g} % of the {objective['about']};"
        f" from {objective['events_min']:,} in an hour"
        for objective in CONTENT["objective"]
    ]
    windows = [
        "| Severity | Times faster than planned | Long window | Short window |",
        "| --- | --- | --- | --- |",
        *(
            "| {severity} | {factor:g} | {long} | {short} |".format(**row)
            for row in burn["windows"]
        ),
    ]
    return BURNING.format(
        name=PREFIX + BURN, objectives="\n".join(objectives), windows="\n".join(windows)
    )
