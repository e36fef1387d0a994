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


def test_statement_has_names_in_place_of_values():
    query = Fact.select(Fact.value).where(Fact.key == model.given("key"))
    composed = 'SELECT "t1"."value" FROM "fact" AS "t1" WHERE ("t1"."key" = :key)'
    assert model.statement(query) == composed


def test_statement_with_a_value_is_refused():
    with pytest.raises(ValueError, match="given"):
        model.statement(Fact.select(Fact.value).where(Fact.value == "x"))


def test_literal_is_part_of_the_statement():
    query = Fact.select(Fact.key).where(Fact.value == model.literal("ready"))
    assert model.statement(query).endswith("""WHERE ("t1"."value" = 'ready')""")


def test_fields_are_found_by_name():
    assert model.fields(Fact, ["value", "key"]) == [Fact.value, Fact.key]
