"""The smallest and largest id of each file, so that a few ids are found without opening all files.

Ids grow with time, so the ranges of different days hardly overlap. With other ids more files are
opened, and the result is the same.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

Range = tuple[str, str] | list[str]  # a list after JSON


def read(file: Path, column: str) -> Range | None:
    """The range of a text column, from the footer; None if the file does not have it."""
    from pyarrow import parquet  # only a job that wrote files needs it

    metadata = parquet.read_metadata(file)
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    ends = [name.statistics for name in columns if name.path_in_schema == column]
    if not ends or any(end is None or not end.has_min_max for end in ends):
        return None
    return min(end.min for end in ends), max(end.max for end in ends)


def candidates(
    files: Iterable[str], ranges: Mapping[str, Range], ids: Collection[str]
) -> list[str]:
    """The files that may have one of the ids: those whose range has one, or that have no range."""
    wanted = sorted(ids)

    def may_have(file: str) -> bool:
        if file not in ranges:
            return bool(wanted)
        low, high = ranges[file]
        index = bisect_left(wanted, low)
        return index < len(wanted) and wanted[index] <= high

    return [file for file in files if may_have(file)]
