"""Follows a relay's key log, so that the relay can't show different keys to different agents.

The log's end is pinned, with the relay's key. Each refresh reads the new entries, and refuses a log
that does not go on from the pin. Contacts' keys have to be the log's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from appliance.kernel.errors import Conflict
from appliance.network.key_log import (
    ENTRIES_MAX,
    FIRST_HASH,
    LOST,
    REVOKED,
    KeyLogEntry,
    KeyLogHead,
    hash_entry,
    is_head_signed,
)
from appliance.network.keys import AgentPublicKey, BadKey
from appliance.sdk.network.relay_client import RelayClient, RelayRefused
from appliance.sdk.network.state import AgentState

PAGES_MAX = 20  # in one refresh: a third of the requests that a relay allows in a minute
NAMED_MAX = 5  # agents in a problem's text
T = TypeVar("T")
PIN, PROBLEM = "key_log", "key_log_problem"  # cursors


class KeyLogRefused(Conflict):
    code = "KEY_LOG_REFUSED"
    default_message = "the relay's key log does not go on from the log that this agent has seen"
    default_hint = "ask the relay's admins what happened; then agentlip network key-log --accept"


class LogPin(Struct, frozen=True):
    """The pinned end, and up to where the entries were read. `relay_key`: the key that signs the
    end; "" before the first one. `hidden`: entries whose agents the relay does not show."""

    relay_key: str = ""
    number: int = 0
    hash: str = FIRST_HASH
    read: int = 0
    read_hash: str = FIRST_HASH
    hidden: int = 0


class KeyLog:
    """`on_problem` is called with each new reason for a refusal."""

    def __init__(
        self, relay: RelayClient, state: AgentState, on_problem: Callable[[str], None]
    ) -> None:
        self._relay, self._state, self._on_problem = relay, state, on_problem

    @property
    def pin(self) -> LogPin:
        stored = self._state.cursor(PIN)
        return msgspec.json.decode(stored, type=LogPin) if stored else LogPin()

    @property
    def problem(self) -> str:
        """Return why the log or a contact's key was refused last; "" if all is well."""
        return self._state.cursor(PROBLEM)

    def accept(self) -> None:
        """Forget the pin, so that the next refresh pins the log that the relay then shows."""
        self._restart(LogPin())
        self._note("")

    def check(self, read_keys: Callable[[], Mapping[str, str]]) -> frozenset[str]:
        """Follow the log, and return the agents whose keys differ from it. `read_keys` reads
        contacts' keys, again after a difference. Raises KeyLogRefused."""
        try:
            wrong = self._find_wrong(read_keys()) and self._find_wrong(read_keys())
        except KeyLogRefused as error:
            self._note(error.message)
            raise
        names = ", ".join(sorted(wrong)[:NAMED_MAX])
        self._note(f"the relay shows other keys than the log for {names}" if wrong else "")
        return frozenset(wrong)

    def _find_wrong(self, keys: Mapping[str, str]) -> list[str]:
        """Return the agents whose key is not the last one in the log; none before the whole log
        was read."""
        pin = self._follow(self.pin)
        logged = self._read_log()
        if pin.hidden and not keys.keys() <= logged.keys():  # hidden before they were contacts
            pin = self._follow(self._restart(structs.replace(pin, read=0, read_hash=FIRST_HASH)))
            logged = self._read_log()
        is_read = pin.relay_key and pin.read == pin.number
        return [name for name, key in keys.items() if logged.get(name) != key] if is_read else []

    def _follow(self, pin: LogPin) -> LogPin:
        """Read the log's end, and the entries up to there; return the new pin."""
        head = self._read_head()
        if head is None and pin.relay_key:
            raise KeyLogRefused("the relay does not show the key log any more")
        if head is None:
            return pin
        _check_head(pin, head)
        pin = structs.replace(pin, relay_key=head.relay_key)
        if pin.number == 0:
            pin = structs.replace(pin, number=head.number, hash=head.hash)
        for _ in range(PAGES_MAX):
            if pin.read == head.number:
                break
            pin = self._read_page(pin, head)
        if pin.read == head.number:
            if pin.read_hash != head.hash:
                raise KeyLogRefused
            pin = structs.replace(pin, number=head.number, hash=head.hash)
        if pin != self.pin:
            self._keep(pin)
        return pin

    def _read_head(self) -> KeyLogHead | None:
        """Return the signed end; None from a relay without a log."""
        try:
            return _convert(self._relay.request("GET", "/registry/key-log/head"), KeyLogHead)
        except RelayRefused as error:
            if error.details["status"] != 404:
                raise
            return None

    def _read_page(self, pin: LogPin, head: KeyLogHead) -> LogPin:
        path = f"/registry/key-log?after={pin.read}&limit={ENTRIES_MAX}"
        entries = _convert(self._relay.request("GET", path), list[KeyLogEntry])
        entries = entries[: head.number - pin.read]
        if not entries:
            raise KeyLogRefused("the relay does not show all entries in the key log")
        for entry in entries:
            pin = _follow_entry(pin, entry)
        self._keep(pin, entries)
        return pin

    def _read_log(self) -> dict[str, str]:
        """Return the agents' last keys, without revoked and lost agents."""
        with self._state.transaction() as tx:
            return dict(
                tx.execute(
                    "SELECT agent, key FROM key_log WHERE event NOT IN (?, ?)", (REVOKED, LOST)
                )
            )

    def _keep(self, pin: LogPin, entries: Iterable[KeyLogEntry] = ()) -> None:
        rows = [(row.agent, row.public_key, row.event) for row in entries if row.agent is not None]
        with self._state.transaction() as tx:
            tx.executemany(
                "INSERT OR REPLACE INTO key_log (agent, key, event) VALUES (?, ?, ?)", rows
            )
            tx.execute(
                "INSERT OR REPLACE INTO cursors (name, value) VALUES (?, ?)",
                (PIN, msgspec.json.encode(pin).decode()),
            )

    def _restart(self, pin: LogPin) -> LogPin:
        """Read all entries again, with the next refresh."""
        pin = structs.replace(pin, hidden=0)
        with self._state.transaction() as tx:
            tx.execute("DELETE FROM key_log")
        self._keep(pin)
        return pin

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self._state.set_cursor(PROBLEM, problem)
            if problem:
                self._on_problem(problem)


def _check_head(pin: LogPin, head: KeyLogHead) -> None:
    try:
        is_signed = is_head_signed(head, AgentPublicKey.of(head.relay_key))
    except BadKey:
        is_signed = False
    if not is_signed or pin.relay_key not in ("", head.relay_key):
        raise KeyLogRefused("the relay's key log is not signed with the relay's pinned key")
    if head.number < pin.number:
        raise KeyLogRefused("the relay's key log is shorter than before")


def _follow_entry(pin: LogPin, entry: KeyLogEntry) -> LogPin:
    """Return the pin after reading an entry. Raises KeyLogRefused."""
    number, expected = pin.read + 1, hash_entry(pin.read_hash, entry)
    if (entry.number, entry.hash) != (number, expected):
        raise KeyLogRefused("the entries in the relay's key log are not a chain")
    if number == pin.number and expected != pin.hash:
        raise KeyLogRefused
    return structs.replace(
        pin, read=number, read_hash=expected, hidden=pin.hidden + (entry.agent is None)
    )


def _convert(row: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError:
        raise KeyLogRefused("the relay's key log is malformed") from None
