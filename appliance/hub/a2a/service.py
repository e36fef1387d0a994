"""The operations on tasks: send, show, cancel and follow."""

import hashlib

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.a2a import queries, wire, writes
from appliance.hub.a2a.messages import read_text, to_envelope, to_task
from appliance.hub.a2a.queries import StoredTask, TaskKey
from appliance.hub.a2a.settings import A2aAgentSettings, A2aSettings
from appliance.hub.access import POST
from appliance.hub.ask.access import Answerer
from appliance.hub.ask.service import Asks
from appliance.hub.entries.service import name_of
from appliance.hub.incoming.service import EnvelopeSink
from appliance.hub.incoming.wire import NoCourier
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_message
from appliance.hub.waiting import read_until
from appliance.hub.writes import find_or_create_topic
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Invalid
from appliance.kernel.feed import FeedSubscription
from appliance.kernel.idempotency import Reply, stored_reply

WAIT_SECONDS_MAX = 60.0  # a caller that waits for the task's end; then the task goes on
QUEUE_MAX = 100  # events that announce a change; with more, the task is read again anyway


class Tasks:
    """One per process. `asks`, `stream`: None while their roles are off."""

    def __init__(
        self, hub: Hub, clock: Clock, settings: A2aSettings, asks: Asks | None = None,
        stream: EnvelopeSink | None = None,
    ) -> None:  # fmt: skip
        self.hub, self.clock = hub, clock
        self._settings, self._asks, self._stream = settings, asks, stream
        self.agents = {agent.name: agent for agent in settings.agents}

    def require(self, name: str) -> A2aAgentSettings:
        """Return the agent that takes work under this name. Raises NoSuchAgent."""
        agent = self.agents.get(name)
        if agent is None:
            raise wire.NoSuchAgent(details={"agents": sorted(self.agents)})
        return agent

    def require_only(self) -> A2aAgentSettings:
        """Return the only agent that takes work. Raises NoSuchAgent unless there is exactly one."""
        if len(self.agents) == 1:
            return next(iter(self.agents.values()))
        paths = [f"/a2a/{name}/.well-known/agent-card.json" for name in sorted(self.agents)]
        hint = "use an agent's own card: " + ", ".join(paths[:5]) if paths else None
        raise wire.NoSuchAgent("not exactly one agent takes work here", hint=hint)

    def send(self, agent: str, command: wire.SendMessage, principal: Principal) -> TaskKey:
        """Store a message, in a new task or in the named one. A repeated message id of the same
        caller is stored once. Raises TaskMissing, TaskEnded or Invalid."""
        message = command.message
        if message.role != "ROLE_USER":
            raise Invalid("a caller's role is ROLE_USER", details={"field": "message.role"})
        if command.configuration.task_push_notification_config is not None:
            raise wire.NoPushNotifications
        self._check_channel(principal)
        text, caller = read_text(message.parts), name_of(principal)
        check_message(caller, text)
        if message.task_id:
            key = self.key_of(agent, message.task_id, principal)
            self._continue(key, message, text, principal)
            return key
        return self._begin(agent, message, text, principal)

    def show(self, key: TaskKey, history: int | None = None) -> wire.Task:
        """Return the task as it is now. Raises TaskMissing."""
        return to_task(self.find(key), key, history)

    def find(self, key: TaskKey) -> StoredTask:
        task: StoredTask = self.hub.store.read(queries.find_task, key)
        return task

    def cancel(self, key: TaskKey, principal: Principal) -> wire.Task:
        """End a task by declining its open entries. Raises TaskMissing or TaskNotCancelable."""
        self.hub.store.write(writes.cancel, key, principal.label)
        return self.show(key)

    def key_of(self, agent: str, task_id: str, principal: Principal) -> TaskKey:
        self._check_channel(principal)
        caller = name_of(principal)
        if caller == agent:
            raise Invalid(
                "an agent can't send work to itself",
                details={"field": "message"},
                hint="use another token: agentlip token create --help",
            )
        return TaskKey(task_id, self._settings.channel, agent, caller, principal.label or caller)

    def subscribe(self, key: TaskKey) -> FeedSubscription:
        """Subscribe to the task's events, which only say when to read the task again."""
        return self.hub.feed.subscribe(QUEUE_MAX, lambda event: event.topic_id == key.topic)

    def wait(self, key: TaskKey, principal: Principal, history: int | None) -> wire.Task:
        """Return the task once it ended or waits for the caller, or after 60 seconds."""
        task = read_until(
            lambda task: task.progress.paused, lambda: self.find(key),
            self.hub, self.subscribe(key), WAIT_SECONDS_MAX, principal,
        )  # fmt: skip
        return to_task(task, key, history)

    def _check_channel(self, principal: Principal) -> None:
        """Raise OtherChannel for a token that is limited to other channels."""
        if principal.channels_for(POST) is not None:
            self.hub.access.find_channel(principal, POST, self._settings.channel)

    def _begin(
        self, agent: str, message: wire.A2aMessage, text: str, principal: Principal
    ) -> TaskKey:
        """Make the task's topic and post into it. The title follows from the message's id, so a
        repetition finds the topic."""
        identity = f"{principal.id}\n{agent}\n{message.message_id}"
        digest = hashlib.sha256(identity.encode()).hexdigest()
        title = queries.title_of(agent, message.context_id or digest[:16], digest[16:28])
        topic = self.hub.store.write(
            find_or_create_topic, self._settings.channel, title, principal.label
        )
        key = self.key_of(agent, topic, principal)
        self._post(key, message, text, principal)
        return key

    def _continue(
        self, key: TaskKey, message: wire.A2aMessage, text: str, principal: Principal
    ) -> None:
        """Answer the ask that waits for the caller, or post one more message."""
        identity = keyed_request(principal, "POST", f"a2a/{key.topic}", digest_of(message), text)
        if self.hub.store.read(stored_reply, identity) is not None:
            return  # a repeated answer
        context, entries, progress = self.hub.store.read(queries.find_progress, key)
        if message.context_id not in ("", context):
            raise Invalid(
                "the task has another contextId",
                details={"field": "message.contextId"},
                hint="leave out contextId, or send the task's own",
            )
        if progress.ended:
            raise wire.TaskEnded(details={"state": progress.state})
        if progress.question is not None and self._asks is not None:
            who = Answerer(key.caller, principal.label, name=key.name)
            self._asks.answer_as(progress.question, text, who, identity)
            return
        if len(entries) >= wire.TASK_MESSAGES_MAX:
            raise wire.TooManyTaskMessages(details={"limit": wire.TASK_MESSAGES_MAX})
        self._post(key, message, text, principal)

    def _post(
        self, key: TaskKey, message: wire.A2aMessage, text: str, principal: Principal
    ) -> None:
        command = hub_wire.CreateMessage(
            key.topic, key.caller, text, to=[key.agent],
            ack_by_seconds=self._settings.deadline_seconds or None,
        )  # fmt: skip
        stream = self.require(key.agent).stream
        if not stream:
            self.hub.create_message(command, principal, digest_of(message))
            return
        if self._stream is None:
            raise NoCourier
        reply = self.hub.create_message(command, principal, digest_of(message))
        self._stream(stream, self._envelope(reply, key, message.message_id, text))

    def _envelope(self, reply: Reply, key: TaskKey, message_id: str, text: str) -> bytes:
        """Return a stored message's envelope. After a crash between both, the caller's repetition
        enqueues the envelope."""
        stored = msgspec.json.decode(reply.body)["message"]["id"]
        entry = self.hub.store.read(queries.find_entry, stored, key.agent)
        now = iso(self.clock.now_ms())
        return msgspec.json.encode(to_envelope(key, entry, message_id, text, now))


def digest_of(message: wire.A2aMessage) -> str:
    """Return an idempotency key: a message id can have characters that keys can't."""
    return "a2a-" + hashlib.sha256(message.message_id.encode()).hexdigest()
