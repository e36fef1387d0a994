"""Lists without a cursor: as large as the settings allow, they are about a page in bytes at most.

A limit that is raised beyond that turns this red: then the list needs `has_more` and `after`.
"""

import msgspec
import pytest

from appliance.broker import wire as broker
from appliance.broker.queries import MESHES_MAX
from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.outbox import wire as outbox
from appliance.outbox.admin import REDRIVE_MAX

TIME = "2026-01-01T00:00:00.000Z"
ID = "x" * 64  # our ids are shorter
SLUG = "x" * 63


def meshes():
    row = broker.Mesh(SLUG, "retention_scoped", 3999, 36_500, "allow_concurrent", TIME)
    return row, MESHES_MAX


def redriven():
    return outbox.Redriven(ID, "x" * 255, ID, "x" * 255), REDRIVE_MAX


@pytest.mark.parametrize("largest", [meshes, redriven], ids=lambda item: item.__name__)
def test_the_largest_answer_is_about_a_page(largest):
    row, count = largest()
    assert (len(msgspec.json.encode(row)) + 1) * count <= PAGE_BYTES_MAX
