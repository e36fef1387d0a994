"""Describes where a member runs. `negotiate` contains it, so brokers refuse copies of running
members.

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

COPY = "copy:"  # prefix for keys in meta
Text = Annotated[str, Meta(max_length=4096)]  # a path has at most as many characters


class MemberInstance(Struct, frozen=True):
    """One running copy. `machine` is the boot id, because a machine's copies have one host name."""

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
    """The record of a refused copy: the member runs on `running_on`, and its copy on `refused`
    was refused. The broker, the member and the refused copy each store this record."""

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
    """Return where the member runs; None if the features don't show it. Raises
    msgspec.ValidationError."""
    for feature in features:
        if isinstance(feature, frames.Feature) and feature.name == POLICY:
            return msgspec.convert(feature.params.get("instance"), MemberInstance | None)
    return None
