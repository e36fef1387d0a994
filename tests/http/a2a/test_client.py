"""The official client against a served appliance, with an agent that works from its inbox."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.types import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWK

from tests.http.a2a.agents import A2aHub, at_once, connected, message

pytestmark = pytest.mark.slow


def run(steps):
    """Run the caller's steps in a loop of their own."""
    return asyncio.run(asyncio.wait_for(steps, 60))


async def first_task(client, request):
    async for event in client.send_message(request):
        return event.task
    raise AssertionError("no task came")


def begin(hub: A2aHub, number: str, text: str = "build main"):
    async def steps():
        async with connected(hub, streaming=False) as client:
            return await first_task(client, at_once(message(text, number)))

    return run(steps())


def get(hub: A2aHub, task_id: str):
    async def steps():
        async with connected(hub) as client:
            return await client.get_task(GetTaskRequest(id=task_id))

    return run(steps())


def test_task_goes_from_submitted_to_working_to_completed(hub):
    task = begin(hub, "m-states")
    assert task.status.state == TaskState.TASK_STATE_SUBMITTED
    agent = hub.agent()
    entry = agent.next_entry(task.id)
    assert entry["message"]["content_raw"] == "build main"
    assert get(hub, task.id).status.state == TaskState.TASK_STATE_WORKING
    agent.reply(task.id, "built: 3 warnings")
    agent.acknowledge(entry["id"])
    done = get(hub, task.id)
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert [part.text for artifact in done.artifacts for part in artifact.parts] == [
        "built: 3 warnings"
    ]
    assert [part.text for sent in done.history for part in sent.parts] == ["build main"]
    assert done.context_id == task.context_id


def test_send_without_return_immediately_waits_for_the_end(hub):
    async def steps():
        async with connected(hub, streaming=False) as client:
            return await first_task(client, message("wait for me", "m-wait"))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: run(steps()))
        agent = hub.agent()
        entry = agent.next_entry("wait for me")
        agent.reply(entry["message"]["topic_id"], "done")
        agent.acknowledge(entry["id"])
        task = waiting.result(60)
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert task.artifacts[0].parts[0].text == "done"


def test_stream_has_the_task_then_artifacts_then_the_end(hub):
    async def steps():
        events = []
        async with connected(hub) as client:
            async for event in client.send_message(message("stream it", "m-stream")):
                events.append(event)
        return events

    with ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(lambda: run(steps()))
        agent = hub.agent()
        entry = agent.next_entry("stream it")
        task_id = entry["message"]["topic_id"]
        agent.reply(task_id, "half")
        agent.reply(task_id, "whole")
        agent.acknowledge(entry["id"])
        events = streaming.result(60)
    kinds = [event.WhichOneof("payload") for event in events]
    assert kinds[0] == "task"
    assert kinds[-1] == "status_update"
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    artifacts = [
        event.artifact_update.artifact for event in events if event.HasField("artifact_update")
    ]
    assert [artifact.parts[0].text for artifact in artifacts] == ["half", "whole"]


def test_subscribe_follows_a_task_that_has_not_ended(hub):
    task = begin(hub, "m-subscribe")
    agent = hub.agent()
    entry = agent.next_entry(task.id)

    async def steps():
        events = []
        async with connected(hub) as client:
            async for event in client.subscribe(SubscribeToTaskRequest(id=task.id)):
                if not events:
                    agent.acknowledge(entry["id"])
                events.append(event)
            with pytest.raises(UnsupportedOperationError):
                async for _ in client.subscribe(SubscribeToTaskRequest(id=task.id)):
                    pass
        return events

    events = run(steps())
    assert events[0].task.id == task.id
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


def test_declined_entry_rejects_the_task_with_its_reason(hub):
    task = begin(hub, "m-decline")
    agent = hub.agent()
    agent.decline(agent.next_entry(task.id)["id"], "not my repository")
    rejected = get(hub, task.id).status
    assert rejected.state == TaskState.TASK_STATE_REJECTED
    assert rejected.message.parts[0].text == "not my repository"


def test_canceled_task_leaves_the_inbox_and_stays_canceled(hub):
    task = begin(hub, "m-cancel")

    async def cancel():
        async with connected(hub) as client:
            canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(CancelTaskRequest(id=task.id))
            with pytest.raises(UnsupportedOperationError):
                await first_task(client, at_once(message("more", "m-late", task_id=task.id)))
            return canceled

    assert run(cancel()).status.state == TaskState.TASK_STATE_CANCELED
    rows = hub.served.rows(
        "SELECT e.state FROM x_entries AS e JOIN messages AS m ON m.id = e.message_id"
        " WHERE m.topic_id = ?",
        task.id,
    )
    assert rows == [("declined",)]
    assert get(hub, task.id).status.state == TaskState.TASK_STATE_CANCELED


def test_ask_for_the_caller_makes_the_task_input_required_until_answered(hub):
    task = begin(hub, "m-ask")
    agent = hub.agent()
    entry = agent.next_entry(task.id)
    ask = agent.ask(task.id, "Which branch?", "caller")
    asked = get(hub, task.id)
    assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert asked.status.message.parts[0].text == "Which branch?"
    assert not asked.artifacts

    async def answer():
        async with connected(hub, streaming=False) as client:
            return await first_task(
                client, at_once(message("release", "m-answer", task_id=task.id))
            )

    assert run(answer()).status.state == TaskState.TASK_STATE_WORKING
    assert run(answer()).id == task.id, "a repetition is not one more message"
    assert agent.answer_to(ask["id"])["answer"] == "release"
    agent.acknowledge(entry["id"])
    answered = agent.next_entry(task.id)
    assert answered["message"]["content_raw"].startswith("release")
    agent.acknowledge(answered["id"])
    assert get(hub, task.id).status.state == TaskState.TASK_STATE_COMPLETED


def test_ask_for_people_here_is_not_shown_to_the_caller(hub):
    task = begin(hub, "m-people")
    agent = hub.agent()
    agent.next_entry(task.id)
    agent.ask(task.id, "May I deploy?")
    assert get(hub, task.id).status.state == TaskState.TASK_STATE_WORKING


def test_follow_up_is_one_more_entry_of_the_same_task(hub):
    task = begin(hub, "m-first")
    agent = hub.agent()
    first = agent.next_entry(task.id)

    async def follow_up():
        async with connected(hub, streaming=False) as client:
            return await first_task(
                client, at_once(message("and the docs", "m-second", task_id=task.id))
            )

    assert run(follow_up()).id == task.id
    agent.acknowledge(first["id"])
    assert get(hub, task.id).status.state == TaskState.TASK_STATE_WORKING
    agent.acknowledge(agent.next_entry(task.id)["id"])
    done = get(hub, task.id)
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert len(done.history) == 2


def test_repeated_message_id_gives_the_same_task_once(hub):
    task, again = begin(hub, "m-again"), begin(hub, "m-again")
    assert again.id == task.id
    assert len(get(hub, task.id).history) == 1


def test_context_groups_tasks(hub):
    async def steps():
        async with connected(hub, streaming=False) as client:
            first = await first_task(client, at_once(message("a", "m-c1", context_id="night")))
            second = await first_task(client, at_once(message("b", "m-c2", context_id="night")))
            return first, second

    first, second = run(steps())
    assert first.context_id == second.context_id == "night"
    assert first.id != second.id


def test_unknown_task_and_bytes_are_typed_errors(hub):
    async def steps():
        async with connected(hub, streaming=False) as client:
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id="topic_none"))
            request = message("x", "m-raw")
            request.message.parts[0].raw = b"bytes"
            with pytest.raises(ContentTypeNotSupportedError):
                await first_task(client, request)

    run(steps())


def test_changed_card_fails_verification(hub):
    async def steps():
        async with httpx.AsyncClient() as http:
            (key,) = (await http.get(f"{hub.url}/.well-known/jwks.json")).json()["keys"]
            verify = create_signature_verifier(lambda _kid, _jku: PyJWK(key), ["EdDSA"])
            for path in (".well-known/agent-card.json", ".well-known/agent.json"):
                resolver = A2ACardResolver(http, f"{hub.url}/a2a/builder", path)
                card = await resolver.get_agent_card(signature_verifier=verify)
            card.description = "Steals the project"
            with pytest.raises(InvalidSignaturesError):
                verify(card)

    run(steps())
