"""Wraps a network agent for asyncio: `NetworkAgent` methods as coroutines.

    async with AsyncNetworkAgent("anna.agent", on_message=handle) as agent:
        await agent.send("bert", {"text": "The build is green."})

`on_message` and `on_event` may be coroutine functions; the event loop runs them. The background
work begins and ends with the block.
"""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from appliance.sdk.aio import ThreadedClient, run_in_thread
from appliance.sdk.network.agent import NetworkAgent


class AsyncNetworkAgent(ThreadedClient):
    """A `NetworkAgent` for asyncio, with the same arguments. Belongs to one event loop.
    `endpoint.py` takes `agent`, the agent whose calls these are."""

    _client: NetworkAgent

    def __init__(
        self,
        folder: Path | str,
        *,
        on_message: Callable[[Any], Any] | None = None,
        on_event: Callable[[Any], Any] = lambda _: None,
        **more: Any,
    ) -> None:
        handle = None if on_message is None else self._call_in_loop(on_message)
        event = self._call_in_loop(on_event)
        super().__init__(NetworkAgent(folder, on_message=handle, on_event=event, **more))
        self.agent = self._client
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._client.start()
        return self

    def _call_in_loop(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `function` for threads, which wait until the event loop has run it."""

        async def call(argument: Any) -> Any:
            result = function(argument)
            return await result if inspect.isawaitable(result) else result

        def wait(argument: Any) -> Any:
            if self._loop is None:
                raise RuntimeError("use the agent in an 'async with' block")
            return asyncio.run_coroutine_threadsafe(call(argument), self._loop).result()

        return wait

    request_code = run_in_thread(NetworkAgent.request_code)
    register = run_in_thread(NetworkAgent.register)
    rotate_key = run_in_thread(NetworkAgent.rotate_key)
    contacts = run_in_thread(NetworkAgent.contacts)
    pending_requests = run_in_thread(NetworkAgent.pending_requests)
    request_contact = run_in_thread(NetworkAgent.request_contact)
    accept_contact = run_in_thread(NetworkAgent.accept_contact)
    deny_contact = run_in_thread(NetworkAgent.deny_contact)
    block_contact = run_in_thread(NetworkAgent.block_contact)
    remove_contact = run_in_thread(NetworkAgent.remove_contact)
    presence = run_in_thread(NetworkAgent.presence)
    pins = run_in_thread(NetworkAgent.pins)
    safety_number = run_in_thread(NetworkAgent.safety_number)
    confirm_key = run_in_thread(NetworkAgent.confirm_key)
    accept_key = run_in_thread(NetworkAgent.accept_key)
    create_group = run_in_thread(NetworkAgent.create_group)
    list_groups = run_in_thread(NetworkAgent.list_groups)
    group_invitations = run_in_thread(NetworkAgent.group_invitations)
    group_members = run_in_thread(NetworkAgent.group_members)
    group_changes = run_in_thread(NetworkAgent.group_changes)
    invite_to_group = run_in_thread(NetworkAgent.invite_to_group)
    accept_group = run_in_thread(NetworkAgent.accept_group)
    decline_group = run_in_thread(NetworkAgent.decline_group)
    leave_group = run_in_thread(NetworkAgent.leave_group)
    transfer_group = run_in_thread(NetworkAgent.transfer_group)
    remove_from_group = run_in_thread(NetworkAgent.remove_from_group)
    delete_group = run_in_thread(NetworkAgent.delete_group)
    trust_group_log = run_in_thread(NetworkAgent.trust_group_log)
    send_to_group = run_in_thread(NetworkAgent.send_to_group)
    send = run_in_thread(NetworkAgent.send)
    report = run_in_thread(NetworkAgent.report)
    reports = run_in_thread(NetworkAgent.reports)
    broadcasts = run_in_thread(NetworkAgent.broadcasts)
    messages = run_in_thread(NetworkAgent.messages)
    poll = run_in_thread(NetworkAgent.poll)
