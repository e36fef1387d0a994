"""Replies and errors of the identity."""

from msgspec import Struct

from appliance.kernel.errors import Conflict, Forbidden, Unavailable

READ, ADMIN = "inbox:read", "inbox:admin"


class ArchivedKey(Struct, frozen=True):
    key_id: str
    pubkey: str
    rotated_out_at: str
    expires_at: str


class IdentityView(Struct, frozen=True):
    """The member key without secrets. `host` is same, other or unknown."""

    pubkey: str
    key_id: str
    mode: str
    created_at: str
    host_fingerprint: str | None
    host: str
    clone_policy: str
    rotation_unfinished: bool
    archived: list[ArchivedKey]


class Rotated(Struct, frozen=True):
    """`meshes`: those whose brokers accepted the new key."""

    pubkey: str
    former_pubkey: str
    meshes: list[str]
    archived_until: str | None


class HostChanged(Conflict):
    code = "HOST_CHANGED"
    default_message = "this workspace's member key was made on another machine"
    default_hint = (
        "if this machine replaces the other: agentlip identity accept-host;"
        " if the workspace is a copy: agentlip identity remint --yes"
    )


class KeysDamaged(Conflict):
    code = "KEYPAIR_DAMAGED"
    default_message = "the member key file can't be read"
    default_hint = (
        "restore keypair.json from a backup, or make a new key: agentlip identity remint --yes"
    )


class OnlyPersistent(Conflict):
    code = "IDENTITY_EPHEMERAL"
    default_message = "the member key is ephemeral: it exists only while the process runs"
    default_hint = "set identity.mode = 'persistent' in agentlip.toml, then: agentlipd restart"


class RotationUnfinished(Unavailable):
    """`details.taken` and `details.missing` list meshes; in the latter the old key stays valid."""

    code = "ROTATION_UNFINISHED"
    default_message = "not every broker accepted the new key; the old one stays in use"
    default_hint = "agentlip identity rotate: continues with the same new key"


class RotationNeedsInbox(Conflict):
    code = "ROTATION_NEEDS_INBOX"
    default_message = (
        "the member key can't be rotated: the inbox, which notifies brokers, is disabled"
    )
    default_hint = "set roles.inbox = true in agentlip.toml, then: agentlipd restart"


class NoKeys(Forbidden):
    code = "NO_IDENTITY"
    default_message = "this workspace has no member key yet"
    default_hint = "agentlipd up: the first start creates it"
