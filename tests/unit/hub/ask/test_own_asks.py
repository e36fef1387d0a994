"""Asks by the appliance itself: answers, and asks that a restored hub does not have."""

from appliance.hub.ask import wire
from appliance.hub.ask.own_asks import OwnAsks


class BuildAsks(OwnAsks):
    sender = "builds"

    def ask(self, key):
        return self._create(wire.CreateAsk("Deploy?", self.sender, ["yes", "no"]), key).id


def test_waiting_ask_lacks_an_answer_and_a_cancelled_ask_is_empty(env):
    asks = BuildAsks(env.asks)
    ask_id = asks.ask("build-1")
    assert asks.ask("build-1") == ask_id
    assert asks.answer(ask_id) is None
    asks.cancel(ask_id)
    assert asks.answer(ask_id) == ""


def test_ask_that_the_hub_does_not_have_counts_as_ended(env):
    asks = BuildAsks(env.asks)
    asks.cancel("ask_nowhere")
    assert asks.answer("ask_nowhere") == ""
