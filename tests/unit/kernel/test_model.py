"""appliance/kernel/model.py: queries are composed, and never run."""

import peewee
import pytest

from appliance.kernel import model


class Fact(model.Table):
    key = peewee.TextField(primary_key=True)
    value = peewee.TextField()


def test_peewee_never_runs_a_query():
    """Models have no file and no connection, so nothing of peewee's is open in any thread."""
    query = Fact.select(Fact.value).where(Fact.key == model.given("key")).limit(1)
    with pytest.raises(peewee.InterfaceError):
        list(query)
    with pytest.raises(peewee.InterfaceError):
        model.dialect.connect()
    assert model.dialect.is_closed()


def test_statement_with_a_value_is_refused():
    with pytest.raises(ValueError, match="given"):
        model.statement(Fact.select(Fact.value).where(Fact.value == "x"))
