"""Where a member runs. It is sent with `negotiate`, so brokers refuse copies of running members.

{"name": "concurrent_connection_policy", "params": {"version": 1, "instance": {…}}}
"""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.steady_clock import read_boot_id
from appliance.mesh import frames
from appliance.mesh.negotiation import POLICY, VERSIONS

COPY = "copy:"  # prefix of keys in meta
Text = Annotated[str, Meta(max_length=4096)]  # a path has at most as many characters


class MemberInstance(Struct, frozen=True):
    """`machine` is the id of its boot, because copies of a machine have the same host name."""

    host: Text
    workspace: Text
    machine: Text

    @property
    def name(self) -> str:
        return f"{self.host}:{self.workspace}"

    def to_feature(self) -> dict[str, Any]:
        params = {"version": VERSIONS[POLICY], "instance": msgspec.to_builtins(self)}
        return {"name": POLICY, "params": params}


class CopyNote(Struct, frozen=True):
    """Stored where a member runs on `running_on` and a copy of it on `refused` was refused: by the
    broker, the member and the copy."""

    pubkey: str
    running_on: str
    refused: str
    at_ms: int


def note_copy(tx: Tx, where: str, pubkey: str, running_on: str, refused: str) -> None:
    note = CopyNote(pubkey, running_on, refused, tx.now_ms)
    tx.execute(meta.SET, (COPY + where, msgspec.json.encode(note).decode()))


def instance_here(workspace: Path) -> MemberInstance:
    return MemberInstance(socket.gethostname(), str(workspace), read_boot_id())


def instance_in(features: Sequence[str | frames.Feature]) -> MemberInstance | None:
    """None: the member does not say where it runs. Raises msgspec.ValidationError."""
    for feature in features:
        if isinstance(feature, frames.Feature) and feature.name == POLICY:
            return msgspec.convert(feature.params.get("instance"), MemberInstance | None)
    return None
