"""The `Range` header: the part it names, or none."""

from hypothesis import given
from hypothesis import strategies as some

from appliance.web import byterange
from appliance.web.byterange import RangeNotSatisfiable


@given(some.text(alphabet="bytes=-0123456789, ", max_size=20), some.integers(1, 50))
def test_any_range_header_gives_part_or_refusal(text, size):
    try:
        span = byterange.parse_range(text, size)
    except RangeNotSatisfiable:
        return
    assert span is None or 0 <= span.start < span.stop <= size
