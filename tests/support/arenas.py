"""Counts the heaps that glibc made for a process's threads."""

from pathlib import Path

RESERVED_BYTES = 64 << 20  # for each, aligned; most of it is never readable


def arenas_of(pid: int) -> int:
    """Return how many heaps there are besides the first."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    unread = (line.split()[0] for line in maps if line.split()[1].startswith("---"))
    return sum(int(span.partition("-")[2], 16) % RESERVED_BYTES == 0 for span in unread)
