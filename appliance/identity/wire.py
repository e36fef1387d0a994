"""What crosses the door about the identity: what is shown of it, and what is refused."""

from msgspec import Struct

from appliance.kernel.errors import Conflict, Forbidden, Unavailable

READ, ADMIN = "inbox:read", "inbox:admin"


class ArchivedKey(Struct, frozen=True):
    key_id: str
    pubkey: str
    rotated_out_at: str
    expires_at: str


class IdentityShown(Struct, frozen=True):
    """Never a secret. `host` is same, moved_card, other or unknown."""

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
    """`meshes`: whose brokers took the new key."""

    pubkey: str
    former_pubkey: str
    meshes: list[str]
    archived_until: str | None


class ArchiveCleaned(Struct, frozen=True):
    """`removed` would be, with `dry_run`. `put_aside` names malformed archives that go as well."""

    dry_run: bool
    removed: list[ArchivedKey]
    put_aside: list[str]
    kept: list[ArchivedKey]


class HostChanged(Conflict):
    code = "HOST_CHANGED"
    sentence = "the member key of this workspace was made on another machine"
    advice = (
        "if this machine took the other's place: agentlip identity accept-host;"
        " if both are to live: agentlip identity remint"
    )


class KeysDamaged(Conflict):
    code = "KEYPAIR_DAMAGED"
    sentence = "the file of the member key can't be read"
    advice = "put keypair.json back from a backup, or make another key: agentlip identity remint"


class ArchiveDamaged(Conflict):
    code = "KEYPAIR_ARCHIVE_DAMAGED"
    sentence = "the archive of member keys can't be read; nothing was removed"
    advice = "agentlipd restart: the start puts it aside and begins a new one"


class OnlyPersistent(Conflict):
    code = "IDENTITY_EPHEMERAL"
    sentence = "the member key lives as long as the process; there is nothing to keep or change"
    advice = "identity.mode = 'persistent' in agentlip.toml, then agentlipd restart"


class RotationUnfinished(Unavailable):
    """`details.taken` and `details.missing` name meshes. The old key is in force where it was."""

    code = "ROTATION_UNFINISHED"
    sentence = "not every broker took the new key; the old one stays in force here"
    advice = "agentlip identity rotate: again, it goes on with the same new key"


class RotationNeedsInbox(Conflict):
    code = "ROTATION_NEEDS_INBOX"
    sentence = "the key can't be rotated: without the inbox, no broker can be given the new one"
    advice = "roles.inbox = true in agentlip.toml, then agentlipd restart"


class RotationRuns(Conflict):
    sentence = "the member key is being rotated by somebody else"
    advice = "agentlip identity show"


class NoKeys(Forbidden):
    code = "NO_IDENTITY"
    sentence = "this workspace has no member key yet"
    advice = "agentlipd up: the first start makes one"
