"""Changes the rows of files, inside their transactions."""

from collections.abc import Mapping

from appliance.hub.blobs import queries
from appliance.hub.blobs.wire import NoSuchBlob
from appliance.kernel.batch import Tx

_KEEP = """INSERT INTO x_blobs (hash, size, media_type, created_ms, kept_steady_ms)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (hash) DO UPDATE SET kept_steady_ms = ?5,
     media_type = iif(removed_ms IS NULL, media_type, ?3), removed_ms = NULL"""
_CHARGE = """INSERT INTO x_blob_puts (principal, hash, size, put_ms) VALUES (?, ?, ?, ?)
    ON CONFLICT (principal, hash) DO UPDATE SET put_ms = excluded.put_ms"""
_SEE = "UPDATE x_blobs SET kept_steady_ms = ? WHERE hash = ? AND kept_steady_ms = ?"
_REMOVE = (
    "UPDATE x_blobs SET removed_ms = ? WHERE hash = ? AND kept_steady_ms = ? AND removed_ms IS NULL"
)
_UNCHARGE = "DELETE FROM x_blob_puts WHERE hash = ?"


def keep(tx: Tx, digest: str, size: int, media_type: str, principal: str) -> bool:
    """Keep a file whose content is on the disk; return whether the file is new."""
    created = queries.find(tx, digest) is None
    tx.execute(_KEEP, (digest, size, media_type, tx.now_ms, tx.steady_ms))
    tx.execute(_CHARGE, (principal, digest, size, tx.now_ms))
    return created


def settle(tx: Tx, scanned: Mapping[str, int], named: set[str]) -> int:
    """Keep the scanned files that a text names, and remove the rest; return how many. Files that
    were put since the scan began stay."""
    for digest in scanned.keys() & named:
        tx.execute(_SEE, (tx.steady_ms, digest, scanned[digest]))
    return sum(_remove(tx, digest, scanned[digest]) for digest in scanned.keys() - named)


def erase(tx: Tx, digest: str) -> None:
    """Remove a file now. Raises NoSuchBlob."""
    row = queries.find(tx, digest)
    if row is None:
        raise NoSuchBlob
    _remove(tx, digest, row.kept_steady_ms)


def _remove(tx: Tx, digest: str, kept_steady_ms: int) -> bool:
    removed = tx.execute(_REMOVE, (tx.now_ms, digest, kept_steady_ms)).rowcount == 1
    if removed:
        tx.execute(_UNCHARGE, (digest,))
    return removed


def forget(tx: Tx, digest: str) -> None:
    """Delete a removed file's row, after its content."""
    tx.execute("DELETE FROM x_blobs WHERE hash = ? AND removed_ms IS NOT NULL", (digest,))
