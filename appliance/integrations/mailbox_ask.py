"""Asks people whether other agents may become contacts."""

from appliance.hub.ask import wire
from appliance.hub.ask.own_asks import OwnAsks, answer_of
from appliance.mailbox.contact_asks import ContactQuestion


class HubContactAsks(OwnAsks):
    sender = "network"

    def follow(self, question: ContactQuestion) -> str | None:
        return answer_of(self._find_or_create(question))

    def withdraw(self, question: ContactQuestion) -> None:
        self.cancel(self._find_or_create(question).id)

    def _find_or_create(self, question: ContactQuestion) -> wire.Ask:
        command = wire.CreateAsk(
            question.text, self.sender, list(question.choices), None, question.seconds,
            blocks=[f"agent {question.agent}"],
        )  # fmt: skip
        return self._create(command, question.key)
