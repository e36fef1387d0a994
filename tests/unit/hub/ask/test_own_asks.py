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


def test_each_end_of_an_ask_wakes_those_that_wait_once(env):
    woken = []
    BuildAsks(env.asks).listen(lambda: woken.append(env.messages()[-1]))
    answered, cancelled = env.ask()["id"], env.ask()["id"]
    env.ask(choices=["now", "later"], default="later", deadline_seconds=60)
    assert woken == []
    for _ in range(2):  # the second one repeats a stored answer
        env.answer(answered, "yes", key="once")
    env.cancel(cancelled)
    env.clock.pass_seconds(60)
    for _ in range(2):
        env.run_loop()
    assert [sender for sender, _ in woken] == ["person", "agent", "appliance"]
