"""Reads endpoints of incoming webhooks, and counts their delivery ids."""

from appliance.hub.incoming.wire import ENDPOINTS_MAX
from appliance.hub.rows import IncomingRow
from appliance.kernel.reader import Reader

PRINCIPAL = "appliance:incoming"  # no token can have this name
COLUMNS = ", ".join(IncomingRow._fields)


def endpoints(reader: Reader) -> dict[str, IncomingRow]:
    sql = f"SELECT {COLUMNS} FROM x_incoming ORDER BY name LIMIT ?"
    rows = reader.rows(sql, (ENDPOINTS_MAX,), limit=ENDPOINTS_MAX)
    return {row[0]: IncomingRow(*row) for row in rows}


def count_keys(reader: Reader) -> int:
    row = reader.row("SELECT count(*) FROM x_idempotency WHERE principal = ?", (PRINCIPAL,))
    return int(row[0])
