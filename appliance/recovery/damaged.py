"""Maps a damaged file's pages to their tables.

The file's own schema, if found, names the tables' first pages; otherwise this program's schema
does, if the content fits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from appliance.recovery.pages import INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF, Cell, PageFile
from appliance.recovery.shapes import SEQUENCE, Shape, is_schema_row

LEAF_KINDS = (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR)


class DamagedFile:
    """The damaged file, read page by page. `orphans`: pages with records that no tree reaches."""

    def __init__(self, file: PageFile, shapes: Sequence[Shape]) -> None:
        self.file = file
        self._shapes = {shape.name: shape for shape in shapes}
        self._trees: dict[str, list[int]] = {}
        self._whole: set[str] = set()
        self.orphans: Sequence[int] = ()
        self._named: dict[str, tuple[str, int]] = {}  # by the file's schema: kind and first page
        self._assumed: set[str] = set()
        free = file.free_pages()
        schema, schema_whole = file.tree(1)
        self._owned = set(schema)
        self._add_trees(self._roots_on(schema))
        if not schema_whole or self._shapes.keys() - self._trees.keys():
            leaves = (n for n in range(1, file.count + 1) if file.kind(n) == TABLE_LEAF)
            self._add_trees(self._roots_on(n for n in leaves if n not in self._owned | free))
            unnamed = [shape for shape in shapes if shape.name not in self._named]
            self._assumed = {shape.name for shape in unnamed}
            self._add_trees((shape.name, shape.root) for shape in unnamed)
        self._release_shared()
        taken = self._owned | free
        self.orphans = [
            n for n in range(1, file.count + 1) if n not in taken and file.kind(n) in LEAF_KINDS
        ]

    def _roots_on(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        """Return tables and indexes with their first pages, from the schema rows on these pages."""
        rows = [c.values for n in numbers for c in self.file.cells(n) if is_schema_row(c)]
        roots = {str(row[1]): (row[0], row[3]) for row in rows if isinstance(row[3], int)}
        self._named = roots | self._named
        return [(name, root) for name, (_, root) in roots.items() if root > 1]

    def _add_trees(self, roots: Iterable[tuple[str, int]]) -> None:
        """Add new trees whose records fit. An assumed tree must not share its pages."""
        for name, root in roots:
            if name in self._trees:
                continue
            pages, whole = self.file.tree(root)
            shape = self._shapes.get(name)
            if not pages or (shape is not None and not self._fits(shape, pages)):
                continue
            if name in self._assumed and not self._owned.isdisjoint(pages):
                continue
            self._trees[name] = pages
            self._owned.update(pages)
            if whole:
                self._whole.add(name)

    def _fits(self, shape: Shape, pages: list[int]) -> bool:
        """Return whether a tree's first records all have this shape."""
        for number in pages:
            if self.file.kind(number) in LEAF_KINDS:
                cells = list(self.file.cells(number))
                if self.file.kind(number) not in shape.leaf_kinds:
                    return False
                if cells:
                    return all(map(shape.fits, cells))
        return True

    def _release_shared(self) -> None:
        """Remove pages from trees if several trees reach them, because a page above is damaged."""
        uses = Counter(number for pages in self._trees.values() for number in pages)
        shared = {number for number, count in uses.items() if count > 1}
        for name, pages in self._trees.items():
            if not shared.isdisjoint(pages):
                self._trees[name] = [number for number in pages if number not in shared]
                self._whole.discard(name)
        self._owned -= shared

    def is_whole(self, name: str) -> bool:
        """Return whether every page in a table or index, and every row on it, can be read."""
        if name not in self._whole or (name in self._assumed and self.orphans):
            return False
        return all(map(self.file.is_whole, self._trees[name]))

    def records(self, name: str) -> Iterator[Cell]:
        """Yield the records that a table's or index's tree reaches."""
        kinds = self._shapes[name].leaf_kinds if name in self._shapes else LEAF_KINDS
        for number in self._trees.get(name, ()):
            if self.file.kind(number) in kinds:
                yield from self.file.cells(number)

    def entries(self, index: str) -> Iterator[list[Any]]:
        """Yield an index's entries; last, the entries on unreachable pages, which may belong to
        another."""
        shape = self._shapes[index]
        yield from (cell.values for cell in self.records(index))
        for number in () if self.is_whole(index) else self.orphans:
            if self.file.kind(number) in shape.leaf_kinds:
                yield from (c.values for c in self.file.cells(number) if shape.fits(c))

    def sequences(self) -> dict[str, int]:
        """Return the highest number that AUTOINCREMENT gave, by table."""
        rows = [cell.values for cell in self.records(SEQUENCE) if len(cell.values) == 2]
        return {str(name): number for name, number in rows if isinstance(number, int)}

    def unknown_tables(self, derived: tuple[str, ...]) -> list[str]:
        """Return tables that the new file lacks, except derived ones, by the beginnings of their
        names."""
        tables = {name for name, (kind, root) in self._named.items() if kind == "table" and root}
        hidden = ("sqlite_", *derived)
        return sorted(n for n in tables - self._shapes.keys() if not n.startswith(hidden))
