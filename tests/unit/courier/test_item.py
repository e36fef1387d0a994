"""Memory of items."""

from appliance.courier.item import StreamItem


def test_item_has_no_dict():
    assert not hasattr(StreamItem(None, "a", b"", 1, 0.0), "__dict__")
