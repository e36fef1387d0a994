"""Loads and rotates the member key, and signs with it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from appliance.identity import host, keys, metrics, wire
from appliance.identity.files import ARCHIVE, HOST, KEYPAIR, NEXT, IdentityFiles, view_of
from appliance.identity.keys import KeyArchive, KeyPair, KeyRotation
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.lock import GreenletLock
from appliance.kernel.log import Log
from appliance.mesh.signing import RotationOutcome, Signer
from appliance.workspace.datadir import DataDir

T = TypeVar("T")

PublishKey = Callable[[Signer], Mapping[str, RotationOutcome]]
"""Sends the new key to all brokers; returns by mesh whether the broker accepted it."""


class MeshSigner:
    """One mesh's signer: during a rotation the key differs between meshes."""

    def __init__(self, identity: "MemberIdentity", mesh: str) -> None:
        self._identity = identity
        self._mesh = mesh

    @property
    def public_hex(self) -> str:
        return self._identity.keys_in(self._mesh).ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        return self._identity.keys_in(self._mesh).sign(text)


class MemberIdentity:
    """The key in use."""

    def __init__(
        self,
        datadir: DataDir,
        settings: IdentitySettings,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        is_known_elsewhere: bool = True,
        root: Path = Path("/"),
    ) -> None:
        """Load this workspace's key, or make one. Called under the writer lock.

        `is_known_elsewhere`: remote brokers know the key, or a relay knows network agents, so a
        copy would do harm.

        Raises HostChanged if the policy refuses another machine's key.
        """
        self._settings = settings
        self._files = IdentityFiles(datadir)
        self._clock = clock
        self._log = log
        self._current_host = host.measure(environment, root)
        self._rotation: KeyRotation | None = None
        self._archive = KeyArchive()
        self._one_rotation = GreenletLock()
        chosen = choose(settings.mode, environment)
        self.mode = chosen.mode
        if chosen.notice:
            (log.warning if chosen.warns else log.info)(chosen.notice)
        if self.mode == "ephemeral":
            self._keys = keys.make(iso(clock.now_ms()))
            return
        self._keys = self._files.read_keys(self.mode) or self._make_keys()
        if self._current_host.notice:
            log.info(self._current_host.notice)
        self._check_host(is_known_elsewhere)
        self._rotation = self._decode(NEXT, keys.read_rotation)
        self._archive = self._decode(ARCHIVE, keys.read_archive) or self._archive
        self.prune_archive(clock.now_ms())

    def in_mesh(self, mesh: str) -> MeshSigner:
        """Return a signer for that mesh, valid across rotations."""
        return MeshSigner(self, mesh)

    def keys_in(self, mesh: str) -> KeyPair:
        """Return the key that a mesh's broker knows."""
        rotation = self._rotation
        return rotation.keys if rotation is not None and mesh in rotation.taken else self._keys

    def is_own(self, pubkey: str) -> bool:
        """Return whether this member has the key: as the current, next or an archived one."""
        coming = () if self._rotation is None else (self._rotation.keys,)
        own = (self._keys, *coming, *self._archive.keys)
        return any(pubkey == key.ed25519_pubkey for key in own)

    def view(self) -> wire.IdentityView:
        files = self._files if self.mode == "persistent" else None
        return view_of(self._keys, self._settings, self._current_host, files)

    def rotate(self, publish_key: PublishKey | None) -> wire.Rotated:
        """Replace the key once every broker accepted the new one.

        The new key is stored before any broker receives it, so an interrupted rotation continues
        with the stored key. Until the end the old key stays in use.
        """
        if publish_key is None:
            raise wire.RotationNeedsInbox
        if self.mode != "persistent":
            raise wire.OnlyPersistent
        with self._one_rotation:
            return self._rotate(publish_key)

    def _rotate(self, publish_key: PublishKey) -> wire.Rotated:
        old, now = self._keys, iso(self._clock.now_ms())
        new = (self._rotation or self._keep(KeyRotation(keys.make(now)))).keys
        results = publish_key(new)
        taken = [mesh for mesh, outcome in results.items() if outcome == "taken"]
        missing = [mesh for mesh, outcome in results.items() if outcome != "taken"]
        if missing:
            metrics.rotations.labels("unfinished").inc()
            if taken or "unknown" in results.values():
                self._keep(KeyRotation(new, tuple(taken)))
            else:
                self._files.remove(NEXT)  # unknown to every broker
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

    def _make_keys(self) -> KeyPair:
        self._files.remove(HOST)  # a former key's machine
        key_pair = keys.make(iso(self._clock.now_ms()))
        self._files.write(KEYPAIR, key_pair)
        return key_pair

    def _check_host(self, is_known_elsewhere: bool) -> None:
        """Apply the policy if the key was made on another machine. Otherwise store this
        machine's current fingerprint."""
        stored, current = self._files.read_host(), self._current_host
        match = host.compare(stored, current)
        if match != "other":
            has_id = current.host_id_sha256 is not None
            measured = has_id or (match == "unknown" and current.card_sha256 is not None)
            if stored is None or (measured and stored != current):
                self._files.write(HOST, current)
            return
        metrics.clones.labels("fingerprint").inc()
        policy = self._settings.clone_policy
        if policy == "refuse" and is_known_elsewhere:
            raise wire.HostChanged
        if policy != "allow":
            self._log.warning(
                "the member key was made on another machine", hint=wire.HostChanged.default_hint
            )

    def prune_archive(self, now_ms: int) -> int:
        """Remove archived keys past their grace period, and return how many."""
        before = self._archive.keys
        kept = tuple(key for key in before if key.expires_at > iso(now_ms))
        if kept != before:
            self._write_archive(KeyArchive(kept))
        return len(before) - len(kept)

    def _keep(self, rotation: KeyRotation) -> KeyRotation:
        self._files.write(NEXT, rotation)
        self._rotation = rotation
        return rotation

    def _put_into_archive(self, old: KeyPair) -> str:
        now_ms = self._clock.now_ms()
        archived_until = iso(now_ms + keys.ARCHIVE_DAYS * DAY_MS)
        entry = keys.archived(old, iso(now_ms), archived_until)
        archive, surplus = keys.add(self._archive, entry, iso(now_ms))
        self._write_archive(archive)
        if surplus:
            metrics.forced_out.inc(surplus)
            self._log.warning("archived keys removed early: there are too many", keys=surplus)
        return archived_until

    def _write_archive(self, archive: KeyArchive) -> None:
        self._files.write(ARCHIVE, archive)
        self._archive = archive

    def _decode(self, name: str, read: Callable[[bytes], T]) -> T | None:
        """Return a file's decoded content; None without the file. A malformed file is put aside."""
        text = self._files.read(name)
        try:
            return None if text is None else read(text)
        except wire.KeysDamaged as error:
            kept_as = self._files.put_aside(name, self._clock.now_ms())
            self._log.warning(str(error.details["problem"]), kept_as=kept_as)
            return None
