"""Files that cannot have a wanted id are left out, and no other."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark import ranges

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=3)


@given(st.dictionaries(TEXT, st.lists(TEXT, min_size=1, max_size=5)), st.sets(TEXT))
def test_every_file_with_a_wanted_id_is_a_candidate(contents, wanted):
    known = {file: (min(ids), max(ids)) for file, ids in contents.items()}
    chosen = set(ranges.candidates(contents, known, wanted))
    assert {file for file, ids in contents.items() if wanted & set(ids)} <= chosen
    assert all(any(known[file][0] <= each <= known[file][1] for each in wanted) for file in chosen)


def test_file_without_a_range_is_always_a_candidate():
    assert ranges.candidates(["a", "b"], {"a": ("x", "y")}, {"k"}) == ["b"]
    assert ranges.candidates(["a", "b"], {}, set()) == []


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(["b", "é", "a", "\U0001f600"], ("a", "\U0001f600")), (["x"], ("x", "x")), ([], None)],
)
def test_range_of_a_file_is_in_its_footer(tmp_path, ids, expected):
    pq.write_table(pa.table({"id": pa.array(ids, pa.string())}), tmp_path / "f", row_group_size=2)
    assert ranges.read(tmp_path / "f", "id") == expected
    assert ranges.read(tmp_path / "f", "other") is None
