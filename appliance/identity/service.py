"""The member key on the disk and in memory: load, sign, accept-host, remint, rotate."""

from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.identity import host, keys, metrics, wire
from appliance.identity.files import (
    ARCHIVE,
    DAY_MS,
    HOST,
    KEYPAIR,
    NEXT,
    Files,
    key_in,
    stored_host,
    told,
)
from appliance.identity.host import Fingerprint
from appliance.identity.keys import Archive, BadKeys, Keys, Rotation
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.manifest import IDENTITY, StoreLost
from appliance.mesh.signing import RotationOutcome, Signer

Tell = Callable[[Signer, Signer], Mapping[str, RotationOutcome]]
"""(old, new) → for each mesh whether its broker took the new key; unknown: it may have."""


class MeshKey:
    """The key that speaks in one mesh: in the midst of a rotation not the same in all."""

    def __init__(self, identity: "Identity", mesh: str) -> None:
        self._identity = identity
        self._mesh = mesh

    @property
    def public_hex(self) -> str:
        return self._identity.keys_in(self._mesh).ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        return self._identity.keys_in(self._mesh).sign(text)


class Identity:
    """The key in force. `Identity.load` makes one; nothing else does."""

    def __init__(
        self,
        settings: IdentitySettings,
        files: Files,
        held: Keys,
        mode: str,
        here: Fingerprint,
        verdict: str,
        clock: Clock,
        log: Log,
    ) -> None:
        self._settings = settings
        self._files = files
        self._keys = held
        self._rotation: Rotation | None = None
        self._rotating = False
        self._own: frozenset[str] = frozenset()
        self._here = here
        self._clock = clock
        self._log = log
        self.mode = mode
        self.verdict = verdict

    @classmethod
    def load(
        cls,
        datadir: DataDir,
        settings: IdentitySettings,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        known_to_others: bool = True,
        root: Path = Path("/"),
    ) -> "Identity":
        """The key of this workspace, made when there is none. Under the writer lock.

        `known_to_others`: brokers elsewhere know the key, so that a copy of it would harm.
        Raises HostChanged where the policy refuses a key of another machine.
        """
        chosen = choose(settings.mode, environment)
        if chosen.told:
            (log.warning if chosen.warns else log.info)(chosen.told)
        files = Files(datadir)
        here = host.measure(settings.host_id, environment, root)
        now = iso(clock.now_ms())
        if chosen.mode == "ephemeral":
            held = keys.make(now)
            identity = cls(settings, files, held, "ephemeral", here, "same", clock, log)
            identity.resume()
            return identity
        for name in files.open_to_others():
            log.warning("a file of the identity can be read by others", file=name)
        held, made = _held(files, now)
        verdict = "same" if made else _judge(files, here, log)
        if made or verdict == "moved_card" or (verdict == "unknown" and _says_more(files, here)):
            files.write(HOST, here)
        if here.told:
            log.info(here.told)
        if verdict == "other":
            _refuse_or_tell(settings, log, known_to_others)
        identity = cls(settings, files, held, "persistent", here, verdict, clock, log)
        identity.resume()
        return identity

    @property
    def public_hex(self) -> str:
        return self._keys.ed25519_pubkey

    def sign(self, text: bytes) -> bytes:
        """64 bytes, ed25519."""
        return self._keys.sign(text)

    def in_mesh(self, mesh: str) -> MeshKey:
        """What signs for that mesh, now and after a rotation."""
        return MeshKey(self, mesh)

    def keys_in(self, mesh: str) -> Keys:
        """The key that the broker of a mesh knows."""
        rotation = self._rotation
        return rotation.keys if rotation is not None and mesh in rotation.taken else self._keys

    def is_own(self, pubkey: str) -> bool:
        """Ours, or was until lately."""
        return pubkey in self._own

    def shown(self) -> wire.IdentityShown:
        archive = self._archive() if self.mode == "persistent" else Archive()
        return wire.IdentityShown(
            pubkey=self._keys.ed25519_pubkey,
            key_id=self._keys.key_id,
            mode=self.mode,
            created_at=self._keys.created_at,
            host_fingerprint=self._here.fingerprint,
            host=self.verdict,
            clone_policy=self._settings.clone_policy,
            rotation_unfinished=self._rotation is not None,
            archived=told(archive),
        )

    def rotate(self, tell: Tell) -> wire.Rotated:
        """Another key in place of this one, once every broker has taken it.

        The new key is on the disk before any broker hears of it, so that a rotation that
        broke off goes on with the same key. Until the end the old one is in force here.
        """
        if self.mode != "persistent":
            raise wire.OnlyPersistent
        if self._rotating:
            raise wire.RotationRuns
        self._rotating = True
        try:
            return self._rotate(tell)
        finally:
            self._rotating = False
            self._note_own()

    def _rotate(self, tell: Tell) -> wire.Rotated:
        old, new = self._keys, self._begin().keys
        self._note_own()
        told_of = tell(old, new)
        taken = [mesh for mesh, what in told_of.items() if what == "taken"]
        missing = [mesh for mesh, what in told_of.items() if what != "taken"]
        if missing:
            metrics.rotations.labels("unfinished").inc()
            if taken or "unknown" in told_of.values():
                self._keep(Rotation(new, tuple(taken)))
            else:
                self._files.remove(NEXT)  # nobody can have it
                self._rotation = None
            raise wire.RotationUnfinished(
                f"{wire.RotationUnfinished.sentence}: missing {', '.join(missing)}",
                details={"taken": taken, "missing": missing},
            )
        until = self._put_into_archive(old)
        self._files.write(KEYPAIR, new)
        self._files.remove(NEXT)
        self._keys, self._rotation = new, None
        metrics.rotations.labels("done").inc()
        self._log.info("the member key was rotated", key_id=new.key_id, former=old.key_id)
        return wire.Rotated(new.ed25519_pubkey, old.ed25519_pubkey, taken, until)

    def tidy_archive(self) -> int:
        """Forget what is past its grace time; how many keys."""
        if self.mode != "persistent":
            return 0
        before = self._archive()
        after = keys.without_expired(before, iso(self._clock.now_ms()))
        if after is not before:
            self._files.write(ARCHIVE, after)
        return len(before.keys) - len(after.keys)

    def resume(self) -> None:
        """At the start: an unfinished rotation, and what is over."""
        if self.mode == "persistent":
            self._rotation = self._unfinished()
            self.tidy_archive()
        self._note_own()

    def _unfinished(self) -> Rotation | None:
        text = self._files.read(NEXT)
        try:
            return None if text is None else keys.read_rotation(text)
        except BadKeys as error:
            aside = self._files.put_aside(NEXT, self._clock.now_ms())
            self._log.warning(str(error), kept_as=aside)
            return None

    def _begin(self) -> Rotation:
        """The rotation that is under way, or a new one."""
        if self._rotation is None:
            self._keep(Rotation(keys.make(iso(self._clock.now_ms()))))
        assert self._rotation is not None
        return self._rotation

    def _keep(self, rotation: Rotation) -> None:
        self._files.write(NEXT, rotation)
        self._rotation = rotation

    def _note_own(self) -> None:
        kept = self._archive().keys if self.mode == "persistent" else ()
        coming = () if self._rotation is None else (self._rotation.keys.ed25519_pubkey,)
        self._own = frozenset(
            (self.public_hex, *coming, *(archived.ed25519_pubkey for archived in kept))
        )

    def _put_into_archive(self, old: Keys) -> str:
        now_ms = self._clock.now_ms()
        until = iso(now_ms + int(self._settings.archive_days * DAY_MS))
        entry = keys.archived(old, iso(now_ms), until)
        most = self._settings.archive_max
        archive, surplus = keys.add(self._archive(), entry, iso(now_ms), most)
        self._files.write(ARCHIVE, archive)
        if surplus:
            metrics.forced_out.inc(surplus)
            self._log.warning("archived keys gave way before their time", keys=surplus)
        return until

    def _archive(self) -> Archive:
        """What is stored; what can't be read is put aside, and an empty one begun."""
        text = self._files.read(ARCHIVE)
        if text is None:
            return Archive(max_archived_keys=self._settings.archive_max)
        try:
            return keys.read_archive(text)
        except BadKeys as error:
            aside = self._files.put_aside(ARCHIVE, self._clock.now_ms())
            self._log.warning(str(error), kept_as=aside)
            return Archive(max_archived_keys=self._settings.archive_max)


def _held(files: Files, now: str) -> tuple[Keys, bool]:
    text = files.read(KEYPAIR)
    if text is not None:
        return key_in(text), False
    if files.remembered:
        raise StoreLost(IDENTITY)
    held = keys.make(now)
    files.write(KEYPAIR, held)
    return held, True


def _judge(files: Files, here: Fingerprint, log: Log) -> str:
    stored = stored_host(files)
    if stored is None:
        return "unknown"
    verdict = host.compare(stored, here)
    if verdict == "moved_card":
        log.info("the network card is another one; the machine is the same")
    return verdict


def _says_more(files: Files, here: Fingerprint) -> bool:
    """Nothing usable is stored, or this machine can be known again and nothing contradicts."""
    return stored_host(files) is None or bool(here.host_id_sha256 or here.card_sha256)


def _refuse_or_tell(settings: IdentitySettings, log: Log, known_to_others: bool) -> None:
    metrics.clones.labels("fingerprint").inc()
    if settings.clone_policy == "refuse" and known_to_others:
        raise wire.HostChanged
    if settings.clone_policy != "allow":
        log.warning("the member key was made on another machine", hint=wire.HostChanged.advice)
