"""Lists webhooks."""

from appliance.hub.model import EventWebhook
from appliance.hub.rows import EventWebhookRow
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_WEBHOOKS = statement(
    EventWebhook.select(*fields(EventWebhook, EventWebhookRow._fields))
    .where(EventWebhook.id > given("after"))
    .order_by(EventWebhook.id)
    .limit(given("rows"))
)


def webhooks(reader: Reader, after: str, limit: int) -> tuple[list[EventWebhookRow], bool]:
    """List webhooks ordered by id, starting after `after`."""
    return reader.page(
        _WEBHOOKS,
        {"after": after, "rows": limit + 1},
        limit=limit,
        make=lambda row: EventWebhookRow(*row),
        size=lambda row: (
            ROW_BYTES
            + text_bytes(row.url)
            + text_bytes(row.description)
            + text_bytes(row.wanted_json)
            + text_bytes(row.disabled_because)
        ),
    )
