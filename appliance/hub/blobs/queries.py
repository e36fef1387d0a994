"""Reads the rows of files: one file, a principal's usage, what may be removed."""

from appliance.hub.rows import BlobRow
from appliance.kernel.meta import Executor

COLUMNS = ", ".join(BlobRow._fields)
CANDIDATES_MAX = 1000  # compared with the stores' texts in one scan
REMOVED_MAX = 100  # deleted in one round


def find(reader: Executor, digest: str) -> BlobRow | None:
    """Return a file that is kept."""
    sql = f"SELECT {COLUMNS} FROM x_blobs WHERE hash = ? AND removed_ms IS NULL"
    row = reader.execute(sql, (digest,)).fetchone()
    return None if row is None else BlobRow(*row)


def has_put(reader: Executor, principal: str, digest: str) -> bool:
    sql = "SELECT 1 FROM x_blob_puts WHERE principal = ? AND hash = ?"
    return reader.execute(sql, (principal, digest)).fetchone() is not None


def usage(reader: Executor, principal: str) -> tuple[int, int]:
    """Return how many files a principal has put, and their bytes."""
    sql = "SELECT count(*), ifnull(sum(size), 0) FROM x_blob_puts WHERE principal = ?"
    files, size = reader.execute(sql, (principal,)).fetchone()
    return int(files), int(size)


def candidates(reader: Executor, before_ms: int) -> dict[str, int]:
    """Return files that were put, and seen named, before a time: hash → when."""
    rows = reader.execute(
        "SELECT hash, kept_steady_ms FROM x_blobs WHERE removed_ms IS NULL AND kept_steady_ms <= ?"
        " ORDER BY kept_steady_ms LIMIT ?",
        (before_ms, CANDIDATES_MAX),
    )
    return dict(rows.fetchall())


def removed(reader: Executor) -> list[tuple[str, int]]:
    """Return removed files, each with the time, whose content is not deleted yet."""
    rows = reader.execute(
        "SELECT hash, removed_ms FROM x_blobs WHERE removed_ms IS NOT NULL"
        " ORDER BY removed_ms LIMIT ?",
        (REMOVED_MAX,),
    )
    return [(digest, int(at_ms)) for digest, at_ms in rows.fetchall()]


def is_removed(reader: Executor, digest: str) -> bool:
    sql = "SELECT 1 FROM x_blobs WHERE hash = ? AND removed_ms IS NOT NULL"
    return reader.execute(sql, (digest,)).fetchone() is not None


def count(reader: Executor) -> int:
    return int(reader.execute("SELECT count(*) FROM x_blobs").fetchone()[0])


def totals(reader: Executor) -> tuple[int, int, int]:
    """Return how many files are kept, their bytes, and how many are removed."""
    files, size, gone = reader.execute(
        "SELECT count(*), ifnull(sum(iif(removed_ms IS NULL, size, 0)), 0), count(removed_ms)"
        " FROM x_blobs"
    ).fetchone()
    return int(files - gone), int(size), int(gone)
