"""The verbs: add a note, list them."""

from appliance.toy import metrics, wire
from appliance.toy.board import notices
from appliance.toy.settings import ToySettings

from appliance.kernel.batch import Tx
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store


class Toy:
    def __init__(self, store: Store, board: Store, settings: ToySettings) -> None:
        self._store = store
        self._board = board
        self._settings = settings

    def add(self, command: wire.AddNote) -> None:
        self._store.write(_add, command.text, self._settings.notes_max)
        metrics.added.inc()

    def notes(self) -> wire.Notes:
        return wire.Notes(self._store.read(_notes, self._settings.notes_max))

    def notices(self) -> wire.Notes:
        """What other programs put up; raises StoreAbsent until one does."""
        return wire.Notes(self._board.read(notices))


def _add(tx: Tx, text: str, notes_max: int) -> None:
    (count,) = tx.execute("SELECT count(*) FROM note").fetchone()
    if count >= notes_max:
        raise wire.TooManyNotes
    tx.execute("INSERT INTO note (text, at_ms) VALUES (?, ?)", (text, tx.now_ms))


def _notes(reader: Reader, notes_max: int) -> list[str]:
    rows = reader.execute("SELECT text FROM note ORDER BY number LIMIT ?", (notes_max,))
    return [text for (text,) in rows]
