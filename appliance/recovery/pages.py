"""Reads SQLite pages without SQLite, so that one damaged page hides no other.

Source: https://sqlite.org/fileformat2.html. Pure: bytes in, records out. The file may contain
anything, so every number is checked before use, and a cell that does not parse is skipped.
Committed pages in a write-ahead log override the file's pages.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from appliance.recovery.log_frames import FRAME_HEADER_BYTES, own_frames

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100
OWN_SIZES = (4096, 4096)  # a page's bytes, and its content bytes, in this program's files
INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
_TABLES, _INDEXES = (TABLE_INTERIOR, TABLE_LEAF), (INDEX_INTERIOR, INDEX_LEAF)
_FAMILIES = {kind: family for family in (_TABLES, _INDEXES) for kind in family}
"""The page kinds in a tree, by its root's kind."""

_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_FLOAT = struct.Struct(">d")


class Unreadable(Exception):
    """The bytes are not valid."""


class Cell(NamedTuple):
    """One record. `rowid`: None in an index."""

    rowid: int | None
    values: list[Any]


class PageFile:
    """A database file and its write-ahead log. Pages count from 1.

    read(offset, length)  database file bytes, fewer at its end
    wal                   the whole log, or nothing
    """

    def __init__(
        self, read: Callable[[int, int], bytes], file_bytes: int, wal: bytes = b""
    ) -> None:
        self._read = read
        self._wal = wal
        self._file_bytes = file_bytes
        self._use(_sizes(read(0, HEADER_BYTES)))
        if not self.is_whole(1):  # then the size may be wrong too
            self._use(OWN_SIZES)

    def _use(self, sizes: tuple[int, int]) -> None:
        self.page_bytes, self._usable = sizes
        self._frames = dict(_read_committed(self._wal, self.page_bytes))
        self.count = max([-(-self._file_bytes // self.page_bytes), *self._frames])

    def page(self, number: int) -> bytes:
        """Return a page's newest committed content. Raises Unreadable beyond the end."""
        frame = self._frames.get(number)
        if frame is not None:
            return self._wal[frame : frame + self.page_bytes]
        if not 1 <= number <= self.count:
            raise Unreadable
        content = self._read((number - 1) * self.page_bytes, self.page_bytes)
        if len(content) < self.page_bytes:
            raise Unreadable
        return content

    def kind(self, number: int) -> int:
        """Return a tree page's kind, one of four, or 0 for any other page."""
        try:
            kind = self.page(number)[_start(number)]
        except Unreadable:
            return 0
        return kind if kind in (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF) else 0

    def tree(self, root: int) -> tuple[list[int], bool]:
        """Return the pages below `root` in key order, and whether the tree is complete."""
        pages: list[int] = []
        seen: set[int] = set()
        whole = True
        kinds = _FAMILIES.get(self.kind(root), ())
        stack = [root]
        while stack:
            number = stack.pop()
            kind = self.kind(number)
            if kind not in kinds or number in seen:
                whole = False
                continue
            seen.add(number)
            pages.append(number)
            if kind in (INDEX_INTERIOR, TABLE_INTERIOR):
                children, all_read = self._children(number)
                whole = whole and all_read
                stack += reversed(children)
        return pages, whole

    def free_pages(self) -> set[int]:
        """Return the pages that the file lists as unused: their content is old. None if the list is
        bad."""
        free: set[int] = set()
        try:
            header = self.page(1)
            trunk = int.from_bytes(header[32:36])
            while trunk and trunk not in free:
                free.add(trunk)
                content = self.page(trunk)
                length = min(int.from_bytes(content[4:8]), self._usable // 4 - 2)
                free.update(struct.unpack_from(f">{length}I", content, 8))
                trunk = int.from_bytes(content[:4])
        except Unreadable:
            return set()
        return free if len(free) == int.from_bytes(header[36:40]) else set()

    def cells(self, number: int) -> Iterator[Cell]:
        """Yield the valid records on a page. A table's interior pages have none."""
        kind = self.kind(number)
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
            return
        content = self.page(number)
        for offset in _cell_offsets(content, number, kind):
            with suppress(Unreadable, UnicodeDecodeError):
                yield self._cell(kind, content, offset)

    def is_whole(self, number: int) -> bool:
        """Return whether this is a tree page on which every record is readable to its end."""
        kind = self.kind(number)
        if kind == TABLE_INTERIOR:
            return self._children(number)[1]
        if not kind:
            return False
        start = _start(number)
        declared = int.from_bytes(self.page(number)[start + 3 : start + 5])
        return sum(1 for _ in self.cells(number)) == declared

    def _children(self, number: int) -> tuple[list[int], bool]:
        content = self.page(number)
        start = _start(number)
        offsets = _cell_offsets(content, number, content[start])
        children = [int.from_bytes(content[at : at + 4]) for at in offsets]
        children.append(int.from_bytes(content[start + 8 : start + 12]))
        good = [child for child in children if 1 <= child <= self.count]
        declared = int.from_bytes(content[start + 3 : start + 5])
        return good, len(good) == declared + 1

    def _cell(self, kind: int, content: bytes, offset: int) -> Cell:
        if kind == INDEX_INTERIOR:
            offset += 4
        length, offset = _varint(content, offset)
        rowid = None
        if kind == TABLE_LEAF:
            rowid, offset = _varint(content, offset)
        if not 1 <= length <= self.count * self.page_bytes:
            raise Unreadable
        payload = self._payload(content, offset, length, kind == TABLE_LEAF)
        if len(payload) != length:
            raise Unreadable
        return Cell(rowid, _record(payload))

    def _payload(self, content: bytes, offset: int, length: int, in_table: bool) -> bytes:
        usable = self._usable
        local_max = usable - 35 if in_table else (usable - 12) * 64 // 255 - 23
        if length <= local_max:
            return content[offset : offset + length]
        local_min = (usable - 12) * 32 // 255 - 23
        local = local_min + (length - local_min) % (usable - 4)
        local = local if local <= local_max else local_min
        payload = bytearray(content[offset : offset + local])
        following = int.from_bytes(content[offset + local : offset + local + 4])
        while len(payload) < length:
            page = self.page(following)
            payload += page[4 : min(usable, 4 + length - len(payload))]
            following = int.from_bytes(page[:4])
        return bytes(payload)


def _sizes(header: bytes) -> tuple[int, int]:
    """Return the page size, and how many bytes hold content. Without a valid header: our own
    values."""
    size = int.from_bytes(header[16:18])
    size = 65_536 if size == 1 else size
    if not header.startswith(MAGIC) or size < 512 or size & (size - 1):
        return OWN_SIZES
    return size, size - min(header[20], size - 480)


def _start(number: int) -> int:
    return HEADER_BYTES if number == 1 else 0


def _cell_offsets(content: bytes, number: int, kind: int) -> list[int]:
    start = _start(number)
    first = start + (12 if kind in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
    count = min(int.from_bytes(content[start + 3 : start + 5]), (len(content) - first) // 2)
    offsets = struct.unpack_from(f">{count}H", content, first)
    return [offset for offset in offsets if first + 2 * count <= offset < len(content)]


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for step in range(9):
        if offset >= len(content):
            raise Unreadable
        byte = content[offset]
        offset += 1
        if step == 8:
            value = value << 8 | byte
            break
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return (value - (1 << 64) if value >= 1 << 63 else value), offset


def _record(payload: bytes) -> list[Any]:
    """Return the column values."""
    head_bytes, offset = _varint(payload, 0)
    if not offset <= head_bytes <= len(payload):
        raise Unreadable
    kinds = []
    while offset < head_bytes:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    if offset != head_bytes or head_bytes + sum(map(_width, kinds)) != len(payload):
        raise Unreadable
    values: list[Any] = []
    for kind in kinds:
        end = offset + _width(kind)
        values.append(_value(kind, payload[offset:end]))
        offset = end
    return values


def _width(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    if kind < 0 or kind in (10, 11):
        raise Unreadable
    return _INTEGER_BYTES[kind] if kind <= 6 else 8 if kind == 7 else 0


def _value(kind: int, content: bytes) -> Any:
    if kind == 0:
        return None
    if kind <= 6:
        return int.from_bytes(content, signed=True)
    if kind == 7:
        return _FLOAT.unpack(content)[0]
    if kind <= 9:
        return kind - 8
    return content.decode("utf-8") if kind % 2 else content


def _read_committed(wal: bytes, page_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield log pages up to the last commit, oldest first, with their offsets (format §4.1)."""
    waiting: list[tuple[int, int]] = []
    for at in own_frames(wal, page_bytes):
        waiting.append((int.from_bytes(wal[at : at + 4]), at + FRAME_HEADER_BYTES))
        if any(wal[at + 4 : at + 8]):
            yield from waiting
            waiting.clear()
