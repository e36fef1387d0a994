"""Describes how tables and indexes look in a file: the values that their records may have.

The shapes come from a new file with this program's schema, and so are known even if a damaged
file's schema can't be read.
"""

import sqlite3

import msgspec

from appliance.recovery.pages import INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF, Cell

SCHEMA_KINDS = ("table", "index", "trigger", "view")
SEQUENCE = "sqlite_sequence"
_TYPES = {"TEXT": str, "INTEGER": int, "BLOB": bytes}


class StoredColumn(msgspec.Struct, frozen=True):
    """A column in a record. `name`: empty for an expression; `type`: None if any type fits."""

    name: str
    type: type | None
    required: bool


class Shape(msgspec.Struct, frozen=True):
    """A table or an index in the new file.

    table         the table; for an index, the table that it covers
    stored        the columns in record order; an index ends with its table's key
    rowid_column  a table's name for the rowid; None without a name
    whole_table   for an index: every row is in it
    root          the first page in the new file
    """

    name: str
    table: str
    stored: tuple[StoredColumn, ...]
    rowid_column: str | None
    whole_table: bool
    root: int
    numbered: bool = False  # AUTOINCREMENT

    @property
    def is_index(self) -> bool:
        return self.name != self.table

    @property
    def leaf_kinds(self) -> tuple[int, ...]:
        """Return the page kinds that have the records."""
        in_index = self.is_index or self.rowid_column is None
        return (INDEX_LEAF, INDEX_INTERIOR) if in_index else (TABLE_LEAF,)

    def fits(self, cell: Cell) -> bool:
        """Return whether a record can have this shape. Newer table columns may be missing."""
        values = cell.values
        if not 1 <= len(values) <= len(self.stored) or is_schema_row(cell):
            return False
        for column, value in zip(self.stored, values, strict=False):
            if value is None:
                if column.required and (self.is_index or column.name != self.rowid_column):
                    return False
            elif column.type is not None and type(value) is not column.type:
                return False
        missing = self.stored[len(values) :]
        return not missing or not (self.is_index or any(column.required for column in missing))


def is_schema_row(cell: Cell) -> bool:
    return len(cell.values) == 5 and cell.values[0] in SCHEMA_KINDS and cell.rowid is not None


def shapes_of(connection: sqlite3.Connection) -> list[Shape]:
    """Return a file's tables and its sequences, then the indexes."""
    tables = connection.execute(
        "SELECT l.name, l.wr, s.rootpage, s.sql FROM pragma_table_list AS l"
        " JOIN sqlite_schema AS s ON s.name = l.name AND s.type = 'table'"
        " WHERE l.type = 'table' AND l.schema = 'main'"
        " AND (l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' OR l.name = ?) ORDER BY l.name",
        (SEQUENCE,),
    ).fetchall()
    shapes = [_table(connection, *row) for row in tables]
    return [*shapes, *(index for shape in shapes for index in _indexes(connection, shape))]


def _table(
    connection: sqlite3.Connection, name: str, without_rowid: bool, root: int, sql: str
) -> Shape:
    rows = connection.execute("SELECT name, type, \"notnull\", dflt_value, pk FROM"
                              " pragma_table_info(?)", (name,)).fetchall()  # fmt: skip
    keys = sorted((row for row in rows if row[4]), key=lambda row: row[4])
    if without_rowid:
        rows = [*keys, *(row for row in rows if not row[4])]
    alias = len(keys) == 1 and keys[0][1].upper() == "INTEGER"
    columns = tuple(
        StoredColumn(row[0], _TYPES.get(row[1].upper()), bool(row[2]) and row[3] is None)
        for row in rows
    )
    rowid = None if without_rowid else keys[0][0] if alias else "rowid"
    return Shape(name, name, columns, rowid, True, root, "AUTOINCREMENT" in sql.upper())


def _indexes(connection: sqlite3.Connection, table: Shape) -> list[Shape]:
    columns = {column.name: column for column in table.stored}
    number = StoredColumn(table.rowid_column or "", int, True)
    shapes = []
    for name, partial, root in connection.execute(
        "SELECT i.name, i.partial, s.rootpage FROM pragma_index_list(?) AS i"
        " JOIN sqlite_schema AS s ON s.name = i.name WHERE s.rootpage > 0",
        (table.name,),
    ).fetchall():
        stored = tuple(
            number if cid == -1 else columns.get(column or "", StoredColumn("", None, False))
            for cid, column in connection.execute(
                "SELECT cid, name FROM pragma_index_xinfo(?) ORDER BY seqno", (name,)
            )
        )
        shapes.append(Shape(name, table.name, stored, table.rowid_column, not partial, root))
    return shapes
