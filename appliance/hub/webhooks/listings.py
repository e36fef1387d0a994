"""The listing of webhooks."""

from appliance.hub.webhooks.model import Webhook
from appliance.hub.webhooks.queries import Row
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_WEBHOOKS = statement(
    Webhook.select(*fields(Webhook, Row.__struct_fields__))
    .where(Webhook.id > given("after"))
    .order_by(Webhook.id)
    .limit(given("rows"))
)


def webhooks(reader: Reader, after: str, limit: int) -> tuple[list[Row], bool]:
    """In the order of ids, behind `after`."""
    return reader.page(
        _WEBHOOKS,
        {"after": after, "rows": limit + 1},
        limit=limit,
        make=lambda row: Row(*row),
        size=lambda row: (
            ROW_BYTES
            + text_bytes(row.url)
            + text_bytes(row.description)
            + text_bytes(row.wanted_json)
            + text_bytes(row.disabled_because)
        ),
    )
