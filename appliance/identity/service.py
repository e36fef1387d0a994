"""The member key in use: loading, signing and rotation."""

from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.identity import host, keys, metrics, wire
from appliance.identity.files import (
    ARCHIVE,
    HOST,
    KEYPAIR,
    NEXT,
    IdentityFiles,
    archived_view,
    parse_key_pair,
    read_host,
)
from appliance.identity.host import HostFingerprint
from appliance.identity.keys import BadKeys, KeyArchive, KeyPair, KeyRotation
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.log import Log
from appliance.mesh.signing import RotationOutcome, Signer
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import IDENTITY, StoreLost

PublishKey = Callable[[Signer, Signer], Mapping[str, RotationOutcome]]
"""(old, new) → for each mesh whether its broker accepted the new key; unknown: it may have."""


class MeshSigner:
    """Signs for one mesh: during a rotation the key differs between meshes."""

    def __init__(self, identity: "MemberIdentity", mesh: str) -> None:
        self._identity = identity
        self._mesh = mesh

    @property
    def public_hex(self) -> str:
        return self._identity.keys_in(self._mesh).ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        return self._identity.keys_in(self._mesh).sign(text)


class MemberIdentity:
    """The key in use, created by `load`."""

    def __init__(
        self,
        settings: IdentitySettings,
        files: IdentityFiles,
        key_pair: KeyPair,
        mode: str,
        current_host: HostFingerprint,
        host_match: str,
        clock: Clock,
        log: Log,
    ) -> None:
        self._settings = settings
        self._files = files
        self._keys = key_pair
        self._rotation: KeyRotation | None = None
        self._rotating = False
        self._own_keys: frozenset[str] = frozenset()
        self._current_host = current_host
        self._clock = clock
        self._log = log
        self.mode = mode
        self.host_match = host_match

    @classmethod
    def load(
        cls,
        datadir: DataDir,
        settings: IdentitySettings,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        has_remote_brokers: bool = True,
        root: Path = Path("/"),
    ) -> "MemberIdentity":
        """Load the key of this workspace, or make one. Called under the writer lock.

        `has_remote_brokers`: remote brokers know the key, so a copy of it would do harm.
        Raises HostChanged if the policy refuses a key of another machine.
        """
        chosen = choose(settings.mode, environment)
        if chosen.notice:
            (log.warning if chosen.warns else log.info)(chosen.notice)
        files = IdentityFiles(datadir)
        current_host = host.measure(environment, root)
        now = iso(clock.now_ms())
        if chosen.mode == "ephemeral":
            key_pair = keys.make(now)
            identity = cls(settings, files, key_pair, "ephemeral", current_host, "same", clock, log)
            identity.resume()
            return identity
        for name in files.readable_by_others():
            log.warning("an identity file can be read by other users", file=name)
        key_pair, made = _load_or_make(files, now)
        host_match = "same" if made else _compare_host(files, current_host, log)
        if (
            made
            or host_match == "moved_card"
            or (host_match == "unknown" and _should_store_host(files, current_host))
        ):
            files.write(HOST, current_host)
        if current_host.notice:
            log.info(current_host.notice)
        if host_match == "other":
            _check_clone_policy(settings, log, has_remote_brokers)
        identity = cls(
            settings, files, key_pair, "persistent", current_host, host_match, clock, log
        )
        identity.resume()
        return identity

    @property
    def public_hex(self) -> str:
        return self._keys.ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        """64 bytes, ed25519."""
        return self._keys.sign(text)

    def in_mesh(self, mesh: str) -> MeshSigner:
        """A signer for that mesh, valid across rotations."""
        return MeshSigner(self, mesh)

    def keys_in(self, mesh: str) -> KeyPair:
        """The key that the broker of a mesh knows."""
        rotation = self._rotation
        return rotation.keys if rotation is not None and mesh in rotation.taken else self._keys

    def is_own(self, pubkey: str) -> bool:
        """Whether it is this member's key: the current, next or an archived one."""
        return pubkey in self._own_keys

    def view(self) -> wire.IdentityView:
        archive = self._archive() if self.mode == "persistent" else KeyArchive()
        return wire.IdentityView(
            pubkey=self._keys.ed25519_pubkey,
            key_id=self._keys.key_id,
            mode=self.mode,
            created_at=self._keys.created_at,
            host_fingerprint=self._current_host.fingerprint,
            host=self.host_match,
            clone_policy=self._settings.clone_policy,
            rotation_unfinished=self._rotation is not None,
            archived=archived_view(archive),
        )

    def rotate(self, publish_key: PublishKey) -> wire.Rotated:
        """Replace the key once every broker accepted the new one.

        The new key is stored before it is sent to any broker, so that an interrupted rotation
        continues with the same key. Until the end the old key stays in use.
        """
        if self.mode != "persistent":
            raise wire.OnlyPersistent
        if self._rotating:
            raise wire.KeyRotationRunning
        self._rotating = True
        try:
            return self._rotate(publish_key)
        finally:
            self._rotating = False
            self._update_own_keys()

    def _rotate(self, publish_key: PublishKey) -> wire.Rotated:
        old, new = self._keys, self._begin().keys
        self._update_own_keys()
        results = publish_key(old, new)
        taken = [mesh for mesh, outcome in results.items() if outcome == "taken"]
        missing = [mesh for mesh, outcome in results.items() if outcome != "taken"]
        if missing:
            metrics.rotations.labels("unfinished").inc()
            if taken or "unknown" in results.values():
                self._keep(KeyRotation(new, tuple(taken)))
            else:
                self._files.remove(NEXT)  # no broker can have it
                self._rotation = None
            raise wire.RotationUnfinished(
                f"{wire.RotationUnfinished.default_message}: missing {', '.join(missing)}",
                details={"taken": taken, "missing": missing},
            )
        archived_until = self._put_into_archive(old)
        self._files.write(KEYPAIR, new)
        self._files.remove(NEXT)
        self._keys, self._rotation = new, None
        metrics.rotations.labels("done").inc()
        self._log.info("the member key was rotated", key_id=new.key_id, former=old.key_id)
        return wire.Rotated(new.ed25519_pubkey, old.ed25519_pubkey, taken, archived_until)

    def prune_archive(self, now_ms: int) -> int:
        """Remove archived keys past their grace period; returns how many."""
        if self.mode != "persistent":
            return 0
        before = self._archive()
        after = keys.without_expired(before, iso(now_ms))
        if after is not before:
            self._files.write(ARCHIVE, after)
        return len(before.keys) - len(after.keys)

    def resume(self) -> None:
        """At the start: load an unfinished rotation, and prune the archive."""
        if self.mode == "persistent":
            self._rotation = self._unfinished()
            self.prune_archive(self._clock.now_ms())
        self._update_own_keys()

    def _unfinished(self) -> KeyRotation | None:
        text = self._files.read(NEXT)
        try:
            return None if text is None else keys.read_rotation(text)
        except BadKeys as error:
            kept_as = self._files.put_aside(NEXT, self._clock.now_ms())
            self._log.warning(str(error), kept_as=kept_as)
            return None

    def _begin(self) -> KeyRotation:
        """The unfinished rotation, or a new one."""
        if self._rotation is None:
            self._keep(KeyRotation(keys.make(iso(self._clock.now_ms()))))
        assert self._rotation is not None
        return self._rotation

    def _keep(self, rotation: KeyRotation) -> None:
        self._files.write(NEXT, rotation)
        self._rotation = rotation

    def _update_own_keys(self) -> None:
        kept = self._archive().keys if self.mode == "persistent" else ()
        coming = () if self._rotation is None else (self._rotation.keys.ed25519_pubkey,)
        self._own_keys = frozenset(
            (self.public_hex, *coming, *(archived.ed25519_pubkey for archived in kept))
        )

    def _put_into_archive(self, old: KeyPair) -> str:
        now_ms = self._clock.now_ms()
        archived_until = iso(now_ms + keys.ARCHIVE_DAYS * DAY_MS)
        entry = keys.archived(old, iso(now_ms), archived_until)
        archive, surplus = keys.add(self._archive(), entry, iso(now_ms), keys.ARCHIVED_KEYS_MAX)
        self._files.write(ARCHIVE, archive)
        if surplus:
            metrics.forced_out.inc(surplus)
            self._log.warning("archived keys removed early: there are too many", keys=surplus)
        return archived_until

    def _archive(self) -> KeyArchive:
        """The stored archive. A malformed one is put aside and replaced by an empty one."""
        text = self._files.read(ARCHIVE)
        if text is None:
            return KeyArchive()
        try:
            return keys.read_archive(text)
        except BadKeys as error:
            kept_as = self._files.put_aside(ARCHIVE, self._clock.now_ms())
            self._log.warning(str(error), kept_as=kept_as)
            return KeyArchive()


def _load_or_make(files: IdentityFiles, now: str) -> tuple[KeyPair, bool]:
    text = files.read(KEYPAIR)
    if text is not None:
        return parse_key_pair(text), False
    if files.had_keys:
        raise StoreLost(IDENTITY)
    key_pair = keys.make(now)
    files.write(KEYPAIR, key_pair)
    return key_pair, True


def _compare_host(files: IdentityFiles, current_host: HostFingerprint, log: Log) -> str:
    stored = read_host(files)
    if stored is None:
        return "unknown"
    host_match = host.compare(stored, current_host)
    if host_match == "moved_card":
        log.info("the network card changed; the machine is the same")
    return host_match


def _should_store_host(files: IdentityFiles, current_host: HostFingerprint) -> bool:
    """Whether to replace the stored fingerprint, if the comparison gave `unknown`."""
    return read_host(files) is None or bool(current_host.host_id_sha256 or current_host.card_sha256)


def _check_clone_policy(settings: IdentitySettings, log: Log, has_remote_brokers: bool) -> None:
    metrics.clones.labels("fingerprint").inc()
    if settings.clone_policy == "refuse" and has_remote_brokers:
        raise wire.HostChanged
    if settings.clone_policy != "allow":
        log.warning(
            "the member key was made on another machine", hint=wire.HostChanged.default_hint
        )
