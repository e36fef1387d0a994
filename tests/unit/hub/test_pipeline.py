"""Pieces overlap, and are delivered in the order of their beginning."""

import gevent
import pytest
from gevent.event import Event

from appliance.hub.pipeline import Pipeline


class Piece:
    """Begins at once and finishes on request."""

    def __init__(self, name, log, error=None):
        self.name = name
        self.log = log
        self.error = error
        self.may_finish = Event()

    def begin(self):
        self.log.append(f"{self.name} begun")
        return self.finish

    def finish(self):
        self.may_finish.wait()
        if self.error is not None:
            raise self.error
        return self.name


def test_second_piece_begins_while_the_first_is_open_and_is_delivered_after_it():
    log = []
    first, second = Piece("first", log), Piece("second", log)
    pipeline = Pipeline(2)
    for piece in (first, second):
        pipeline.run(piece.begin, log.append)
    assert log == ["first begun", "second begun"]
    second.may_finish.set()
    gevent.idle()
    assert log == ["first begun", "second begun"]
    first.may_finish.set()
    pipeline.wait()
    assert log == ["first begun", "second begun", "first", "second"]


def test_failed_piece_does_not_affect_others():
    log = []
    bad = Piece("bad", log, ValueError("on purpose"))
    good = Piece("good", log)
    pipeline = Pipeline(2)

    def refuse():
        raise KeyError("on purpose")

    for piece in (bad, good):
        piece.may_finish.set()
        pipeline.run(piece.begin, log.append)
    pipeline.wait()
    with pytest.raises(KeyError):
        pipeline.run(refuse, log.append)
    last = Piece("last", log)
    last.may_finish.set()
    pipeline.run(last.begin, log.append)
    pipeline.wait()
    assert [line for line in log if " " not in line] == ["good", "last"]
