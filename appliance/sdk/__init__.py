"""Reads, posts to and follows a workspace, without the server's libraries.

    from agentlip.sdk import Client

A checkout knows the SDK by this name as well (setup.py). Names are loaded when they are first used,
so a program pays only for what it imports.

client, aio             the hub: requests, and events with a durable cursor
courier, courier_aio    envelope producers and consumers
bus, bus_aio            worker bus agents
network                 network agents: contacts and encrypted messages
discovery               which workspace, which hub, which token
reader                  stateless database reads, without a hub
http                    requests to the hub, retried where that is safe
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.busfile.claims import ClaimHeld as ClaimHeld
    from appliance.busfile.claims import ClaimLost as ClaimLost
    from appliance.busfile.workers import InvalidTransition as InvalidTransition
    from appliance.busfile.workers import StaleState as StaleState
    from appliance.kernel.errors import ApplianceError as ApplianceError
    from appliance.mesh.fingerprint import fingerprint as fingerprint
    from appliance.sdk.aio import AsyncClient as AsyncClient
    from appliance.sdk.bus import FileBus as FileBus
    from appliance.sdk.bus import HttpBus as HttpBus
    from appliance.sdk.bus_aio import AsyncFileBus as AsyncFileBus
    from appliance.sdk.bus_aio import AsyncHttpBus as AsyncHttpBus
    from appliance.sdk.client import Client as Client
    from appliance.sdk.courier import Consumer as Consumer
    from appliance.sdk.courier import Delivery as Delivery
    from appliance.sdk.courier_aio import AsyncConsumer as AsyncConsumer
    from appliance.sdk.courier_frames import EnvelopeRefused as EnvelopeRefused
    from appliance.sdk.courier_frames import envelope as envelope
    from appliance.sdk.courier_producer import Producer as Producer
    from appliance.sdk.cursor import Cursor as Cursor
    from appliance.sdk.cursor import FileCursor as FileCursor
    from appliance.sdk.discovery import Endpoint as Endpoint
    from appliance.sdk.discovery import HubNotRunning as HubNotRunning
    from appliance.sdk.discovery import find_hub as find_hub
    from appliance.sdk.errors import AlreadyExists as AlreadyExists
    from appliance.sdk.errors import CrossChannelMove as CrossChannelMove
    from appliance.sdk.errors import HubBusy as HubBusy
    from appliance.sdk.errors import InvalidInput as InvalidInput
    from appliance.sdk.errors import KeyReused as KeyReused
    from appliance.sdk.errors import NotAllowed as NotAllowed
    from appliance.sdk.errors import NotFound as NotFound
    from appliance.sdk.errors import PayloadTooLarge as PayloadTooLarge
    from appliance.sdk.errors import RateLimited as RateLimited
    from appliance.sdk.errors import Refused as Refused
    from appliance.sdk.errors import StorageFull as StorageFull
    from appliance.sdk.errors import TokenRejected as TokenRejected
    from appliance.sdk.errors import VersionConflict as VersionConflict
    from appliance.sdk.http import Retry as Retry
    from appliance.sdk.models import NewMessage as NewMessage
    from appliance.sdk.network.agent import NetworkAgent as NetworkAgent
    from appliance.sdk.network.aio import AsyncNetworkAgent as AsyncNetworkAgent
    from appliance.sdk.network.endpoint import asgi_endpoint as asgi_endpoint
    from appliance.sdk.network.endpoint import wsgi_endpoint as wsgi_endpoint
    from appliance.sdk.network.folder import AgentConfig as AgentConfig
    from appliance.sdk.network.folder import AgentFolder as AgentFolder
    from appliance.sdk.network.remote import RemoteAgent as RemoteAgent
    from appliance.sdk.reader import WorkspaceReader as WorkspaceReader
    from appliance.sdk.stream_follower import NewHistory as NewHistory
    from appliance.sdk.stream_follower import TokenRefused as TokenRefused
    from appliance.sdk.target import OtherDatabase as OtherDatabase
    from appliance.sdk.target import ProtocolUnknown as ProtocolUnknown

_MODULES = {
    ".aio": ("AsyncClient",),
    ".bus": ("FileBus", "HttpBus"),
    ".bus_aio": ("AsyncFileBus", "AsyncHttpBus"),
    ".client": ("Client",),
    ".courier": ("Consumer", "Delivery"),
    ".courier_aio": ("AsyncConsumer",),
    ".courier_producer": ("Producer",),
    ".courier_frames": ("EnvelopeRefused", "envelope"),
    ".cursor": ("Cursor", "FileCursor"),
    ".discovery": ("Endpoint", "HubNotRunning", "find_hub"),
    ".errors": (
        "AlreadyExists", "CrossChannelMove", "HubBusy", "InvalidInput", "KeyReused", "NotAllowed",
        "NotFound", "PayloadTooLarge", "RateLimited", "Refused", "StorageFull", "TokenRejected",
        "VersionConflict",
    ),
    ".http": ("Retry",),
    ".models": ("NewMessage",),
    ".network.agent": ("NetworkAgent",),
    ".network.aio": ("AsyncNetworkAgent",),
    ".network.endpoint": ("asgi_endpoint", "wsgi_endpoint"),
    ".network.folder": ("AgentConfig", "AgentFolder"),
    ".network.remote": ("RemoteAgent",),
    ".reader": ("WorkspaceReader",),
    ".stream_follower": ("NewHistory", "TokenRefused"),
    ".target": ("OtherDatabase", "ProtocolUnknown"),
    "..busfile.claims": ("ClaimHeld", "ClaimLost"),
    "..busfile.workers": ("InvalidTransition", "StaleState"),
    "..kernel.errors": ("ApplianceError",),
    "..mesh.fingerprint": ("fingerprint",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
