"""LangGraph and the OpenAI Agents SDK with a served hub: upstream's conformance tests, and graphs
and sessions that continue in another process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from appliance.sdk.client import Client
from appliance.sdk.langgraph import HubSaver, HubStore
from appliance.sdk.openai_agents import HubSession
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
UNTRACED = RunConfig(tracing_disabled=True)
BASE = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


def client(hub: ServedHub) -> Client:
    return Client(workspace=hub.workspace)


def test_checkpointer_passes_the_conformance_tests(hub: ServedHub) -> None:
    number = iter(range(100))

    @checkpointer_test(name="hub")
    async def savers() -> AsyncIterator[HubSaver]:
        with client(hub) as made:
            yield HubSaver(made, f"conformance-{next(number)}")

    report = asyncio.run(validate(savers))
    results = report.results.items()
    failed = {name: result.failures for name, result in results if result.passed is False}
    assert failed == {}
    assert {name for name, result in results if result.passed} >= BASE


class State(TypedDict):
    texts: Annotated[list[str], lambda old, new: old + new]


def ask(state: State) -> State:
    return {"texts": [f"answer {interrupt('which?')}"]}


def graph(saver: HubSaver, store: HubStore | None = None) -> Any:
    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver, store=store)


def test_interrupted_graph_continues_in_another_process(hub: ServedHub) -> None:
    config = {"configurable": {"thread_id": "a thread / with signs"}}
    with client(hub) as first:
        result = graph(HubSaver(first)).invoke({"texts": ["go"]}, config)
        assert result["__interrupt__"][0].value == "which?"
    hub.kill()
    hub.start()
    with client(hub) as second:
        saver = HubSaver(second)
        assert graph(saver).invoke(Command(resume="7"), config)["texts"] == ["go", "answer 7"]
        assert [each.metadata["step"] for each in saver.list(None)][:3] == [1, 0, -1]


def test_thread_may_have_the_name_of_the_store_topic(hub: ServedHub) -> None:
    config = {"configurable": {"thread_id": "items"}}
    with client(hub) as made:
        saver, store = HubSaver(made, "mixed"), HubStore(made, "mixed")
        store.put(("users",), "ada", {"value": 1})
        graph(saver).invoke({"texts": ["go"]}, config)
        assert len(list(HubSaver(made, "mixed").list(None))) == 2
        assert HubStore(made, "mixed").get(("users",), "ada").value == {"value": 1}


def test_savers_of_two_processes_see_writes_and_deletions(hub: ServedHub) -> None:
    config = {"configurable": {"thread_id": "shared"}}
    with client(hub) as this_hub, client(hub) as other_hub:
        savers = [HubSaver(this_hub), HubSaver(other_hub)]
        graph(savers[0]).invoke({"texts": ["x" * 100_000]}, config)
        assert savers[1].get_tuple(config).checkpoint["channel_values"]["texts"] == ["x" * 100_000]
        savers[0].delete_thread("shared")
        assert savers[1].get_tuple(config) is None


def test_stores_of_two_processes_have_the_same_items(hub: ServedHub) -> None:
    with client(hub) as this_hub, client(hub) as other_hub:
        first, second = HubStore(this_hub, "memory"), HubStore(other_hub, "memory")
        first.put(("users", "ada"), "name", {"value": "Ada"})
        created = second.get(("users", "ada"), "name").created_at
        second.put(("users", "ada"), "name", {"value": "Ada L."})
        second.put(("users", "bert"), "name", {"value": "Bert"})
        item = first.get(("users", "ada"), "name")
        assert (item.value, item.created_at) == ({"value": "Ada L."}, created)
        assert len(first.search(("users",), filter={"value": "Bert"})) == 1
        assert first.list_namespaces(max_depth=1) == [("users",)]
        first.delete(("users", "bert"), "name")
        assert asyncio.run(second.aget(("users", "bert"), "name")) is None
    with client(hub) as third:
        fresh = HubStore(third, "memory")
        assert [item.value for item in fresh.search(("users",))] == [{"value": "Ada L."}]
        assert fresh.get(("users", "ada"), "name").created_at == created


class Echo(Model):
    """Says how many items it was given. Stands in for the model."""

    async def get_response(self, **given: Any) -> Any:
        text = ResponseOutputText(
            text=f"{len(given['input'])} items", type="output_text", annotations=[]
        )
        message = ResponseOutputMessage(
            id="1", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_runner_continues_a_session_from_another_process(hub: ServedHub) -> None:
    agent = Agent(name="echo", model=Echo())

    def run(text: str) -> str:
        with client(hub) as made:
            session = HubSession("talk 1", made)
            result = asyncio.run(Runner.run(agent, text, session=session, run_config=UNTRACED))
            return str(result.final_output)

    assert [run("one"), run("two")] == ["1 items", "3 items"]


def test_session_pops_limits_and_clears(hub: ServedHub) -> None:
    async def use() -> None:
        with client(hub) as this_hub, client(hub) as other_hub:
            first, second = HubSession("s", this_hub), HubSession("s", other_hub)
            assert await first.pop_item() is None
            await first.add_items([{"role": "user", "content": str(n)} for n in range(4)])
            assert [each["content"] for each in await second.get_items(2)] == ["2", "3"]
            popped = await asyncio.gather(first.pop_item(), second.pop_item())
            assert sorted(each["content"] for each in popped) == ["2", "3"]
            await second.clear_session()
            assert await first.get_items() == []

    asyncio.run(use())
