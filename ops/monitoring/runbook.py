"""Renders the runbook: a section for each alert in slo.toml."""

from collections.abc import Iterator

from ops.monitoring.rules import BURN, CONTENT, PREFIX, Row

HEAD = """\
# Runbook

<!-- Written by `just monitoring` from ops/monitoring/slo.toml. Not edited by hand. -->

Each alert of the shipped rules has a section here, which its annotation `runbook_url` refers to.
Run the command on the machine of the appliance, in the folder that contains `.agentlip`.
[Monitor an appliance](monitor.md) shows how to install the rules."""

BURNING = """\
## {name}

Critical or warning, by how fast the error budget of an objective is used up:

{objectives}

A budget is for 30 days. Each alert looks at a long window, so that few errors fire nothing, and at
a short one, so that it resolves soon after the errors end. Objectives with fewer events than listed
fire nothing, so an idle appliance doesn't: only probes ask it, and its own loops write.

{windows}

Find the reason in the dashboard of the subsystem: errors of requests come from full or slow disks,
suspended stores, or defects, which the log has.

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
        facts.append(f"threshold {row['threshold']} of section 6.5 of the hub's specification")
    yield "Subsystem " + ", ".join(facts) + "."
    yield row["about"]
    commands = row["action"].split(", then ")
    yield "```sh\n" + "\n".join(commands) + "\n```"
    wait = f"for {row['for']} " if row.get("for") else ""
    yield f"It fires if this has a result {wait}in Prometheus:"
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
        name=PREFIX + BURN,
        objectives="\n".join(objectives),
        windows="\n".join(windows),
    )
