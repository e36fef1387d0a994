"""Lists hook runs."""

import msgspec

from appliance.inbox.hooks import wire
from appliance.inbox.model import HookRun
from appliance.inbox.rows import HookRunRow
from appliance.kernel.clock import iso
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_RUNS = statement(
    HookRun.select(*fields(HookRun, HookRunRow._fields))
    .where(HookRun.mesh == given("mesh"), HookRun.number < given("before"))
    .order_by(HookRun.number.desc())
    .limit(given("rows"))
)


def runs(
    reader: Reader, mesh: str, before: int | None, limit: int
) -> tuple[list[wire.HookRun], bool]:
    """Return runs before the number `before`, newest first, and whether there are more."""
    page, more = reader.page(
        _RUNS,
        {"mesh": mesh, "before": 2**62 if before is None else before, "rows": limit + 1},
        limit=limit,
        make=lambda row: HookRunRow(*row),
        size=lambda row: (
            ROW_BYTES + sum(map(text_bytes, (row.hook, row.event, row.inbox_id, row.acts)))
        ),
    )
    return [_to_wire(row) for row in page], more


def _to_wire(row: HookRunRow) -> wire.HookRun:
    acts = msgspec.json.decode(row.acts)
    shown = {"at": iso(row.at), "truncated": bool(row.truncated), "acts": acts}
    stored = row._asdict() | shown
    del stored["command"]
    return wire.HookRun(**stored)
