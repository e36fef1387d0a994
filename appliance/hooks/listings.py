"""The listing of hook runs."""

import msgspec

from appliance.hooks import wire
from appliance.hooks.model import HookRun
from appliance.kernel.clock import iso
from appliance.kernel.model import given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_RUNS = statement(
    HookRun.select(
        HookRun.number, HookRun.id, HookRun.at, HookRun.hook, HookRun.event, HookRun.mesh,
        HookRun.inbox_id, HookRun.outcome, HookRun.exit_code, HookRun.duration_ms,
        HookRun.truncated, HookRun.said_bytes, HookRun.acts,
    )
    .where(HookRun.mesh == given("mesh"), HookRun.number < given("before"))
    .order_by(HookRun.number.desc())
    .limit(given("rows"))
)  # fmt: skip


def runs(
    reader: Reader, mesh: str, before: int | None, limit: int
) -> tuple[list[wire.HookRun], bool]:
    """Newest first, before the number `before`; and whether there are more."""
    page, more = reader.page(
        _RUNS,
        {"mesh": mesh, "before": 2**62 if before is None else before, "rows": limit + 1},
        limit=limit,
        make=lambda row: row,
        size=lambda row: ROW_BYTES + sum(map(text_bytes, (row[3], row[4], row[6], row[12]))),
    )
    return [
        wire.HookRun(
            number, id_, iso(at), hook, event, mesh, inbox_id, outcome, code, ms, bool(truncated),
            output_bytes, msgspec.json.decode(acts),
        )
        for (
            number, id_, at, hook, event, mesh, inbox_id, outcome, code, ms, truncated,
            output_bytes, acts,
        ) in page
    ], more  # fmt: skip
