"""Makes a backup: cuts all stores at one moment, then copies, checks and compresses them."""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from msgspec import UNSET

from appliance import __version__
from appliance.backup import keys, small_files, store_copy
from appliance.backup.backup_directory import BackupWorkspace, check_space, writing
from appliance.backup.cut import PinnedStore, common_cut, present_stores
from appliance.backup.encoding import Source, encode, zstd
from appliance.backup.keys import Identities
from appliance.backup.manifest import BackupFile, BackupManifest, Reason, StoreFacts
from appliance.backup.small_files import AGENT_STATE, AGENTS, SmallFile
from appliance.backup.unpack import FileProgress, no_progress
from appliance.checks.backup_rules import rules_of
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import declaration_of, path_of
from appliance.kernel.store_errors import free_bytes
from appliance.kernel.store_files import UNUSED, open_database
from appliance.kernel.whole_file import new_file
from appliance.workspace import blobs
from appliance.workspace.contents import Kind
from appliance.workspace.datadir import DIRECTORY

_SCRATCH = "scratch."


def create_backup(
    work: BackupWorkspace,
    *,
    reason: Reason,
    progress: FileProgress = no_progress,
    after_cut: Callable[[], object] = lambda: None,
    also_for: Identities | None = None,
) -> BackupManifest:
    """Write a backup and return the manifest. Call inside `work.backups.only_writer()`.

    `progress` receives a file, the finished bytes and the total bytes; `after_cut` is called when
    the stores can be written again. `also_for` can open an encrypted backup too. Raises
    BackupNotWritable, CutNotPossible, StoreNotCopied, RecipientRefused or BackupLibraryMissing;
    then nothing remains.
    """
    zstd()
    recipients = keys.recipients(work.settings)
    if recipients and also_for is not None:
        recipients += [key.to_public() for key in also_for]
    _check_space(work)
    name, folder = work.backups.begin(work.clock.now_ms())
    try:
        manifest = _NewBackup(work, folder, recipients, progress).make(name, reason, after_cut)
        work.backups.finish(manifest, folder)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise
    return work.backups.read(name)


class _NewBackup:
    """One backup in progress, in `folder`."""

    def __init__(
        self, work: BackupWorkspace, folder: Path, recipients: list[Any], progress: FileProgress
    ) -> None:
        self._work = work
        self._folder = folder
        self._recipients = recipients
        self._progress = progress
        self._files: list[BackupFile] = []
        self._stores: dict[str, StoreFacts] = {}
        self._epoch = self._db_id = ""
        self._principals: tuple[str, ...] = ()

    def make(self, name: str, reason: Reason, after_cut: Callable[[], object]) -> BackupManifest:
        datadir, settings, _, clock = self._work
        created_ms, began = clock.now_ms(), clock.monotonic()
        with common_cut(datadir, clock) as cut:
            after_cut()
            # Until a store is copied, its write-ahead log grows, and commits take longer.
            copies = [self._copy(pinned) for pinned in cut.stores]
        for pinned, copied in zip(cut.stores, copies, strict=True):
            self._add_store(pinned, copied)
        self._add_small(cut.small)
        self._add_agent_states()
        return BackupManifest(
            name=name,
            reason=reason,
            created_at=iso(created_ms),
            cut_at=iso(cut.at_ms),
            seconds=round(clock.monotonic() - began, 3),
            pause_ms=cut.pause_ms,
            app_version=__version__,
            db_id=self._db_id,
            epoch=self._epoch,
            last_event_id=max(facts.last_event_id for facts in self._stores.values()),
            identity=small_files.identity_of(cut.small),
            recipients=settings.recipients,
            stores=self._stores,
            principals=self._principals,
            files=tuple(self._files),
        )

    def _copy(self, pinned: PinnedStore) -> Path:
        file = pinned.path.name
        copied = self._folder / (_SCRATCH + file)
        store_copy.copy(pinned, copied, partial(self._progress, file))
        pinned.connection.close()
        return copied

    def _add_store(self, pinned: PinnedStore, copied: Path) -> None:
        file, declaration = pinned.path.name, declaration_of(pinned.store)
        with closing(open_database(copied, UNUSED)) as connection:
            store_copy.check(connection, pinned.store)
            lost = self._add_blobs(blobs.list_named(connection, pinned.store))
            facts = store_copy.facts_of(
                connection,
                pinned.store,
                held_by_other=pinned.held,
                missing_blobs=lost if declaration.blobs else UNSET,
            )
            if declaration.numbers_events:
                self._db_id = facts.store_id
            if authors := rules_of(pinned.store).authors:
                self._principals = store_copy.principals_in(connection, authors)
            if declaration.keeps_record:
                self._epoch = meta.read(connection, "epoch") or ""
        self._stores[pinned.store] = facts
        with writing(), copied.open("rb", buffering=0) as source:
            mode = pinned.path.stat().st_mode & 0o777
            self._encode(file, path_of(pinned.store), "store", mode, source)
            copied.unlink()

    def _add_small(self, files: Iterable[SmallFile]) -> None:
        for file in files:
            name = file.path.removeprefix(f"{DIRECTORY}/").replace("/", ".")
            with writing():
                self._encode(name, file.path, file.kind, file.mode, BytesIO(file.content))

    def _add_agent_states(self) -> None:
        """Add the current network agent states, because programs outside the appliance may use
        them too."""
        for path in sorted(self._work.datadir.dir.glob(f"{AGENTS}/*/{AGENT_STATE}")):
            agent = f"{AGENTS}.{path.parent.name}"
            copied = self._copy(PinnedStore(agent, path, open_database(path, "rw")))
            with closing(open_database(copied, UNUSED)) as connection:
                store_copy.check(connection, agent)
            relative = path.relative_to(self._work.datadir.workspace).as_posix()
            with writing(), copied.open("rb", buffering=0) as source:
                self._encode(f"{agent}.{path.name}", relative, "secret", 0o600, source)
                copied.unlink()

    def _add_blobs(self, paths: Iterable[str]) -> int:
        """Copy files in their current state. Return how many files are gone or do not match
        their name."""
        lost, added = 0, {file.path for file in self._files}
        for path in paths:
            if path in added:  # another store names it too
                continue
            with writing():
                try:
                    file = open_own(self._work.datadir.workspace / path, os.O_RDONLY)
                except OSError:
                    lost += 1
                    continue
                with os.fdopen(file, "rb", buffering=0) as source:
                    mode = os.fstat(file).st_mode & 0o777
                    done = self._encode(f"blob-{len(self._files):06d}", path, "blob", mode, source)
                if not path.endswith(done.sha256):
                    (self._folder / self._files.pop().name).unlink()
                    lost += 1
        return lost

    def _encode(self, name: str, path: str, kind: Kind, mode: int, source: Source) -> BackupFile:
        name += ".zst.age" if self._recipients else ".zst"
        with new_file(self._folder / name) as target:
            done = encode(source, target, recipients=self._recipients)
        file = BackupFile(name=name, path=path, kind=kind, mode=mode, **done._asdict())
        self._files.append(file)
        return file


def _check_space(work: BackupWorkspace) -> None:
    stored = sum(map(work.datadir.store_bytes, present_stores(work.datadir)))
    hint = "free space, or lower backup.free_bytes_min: agentlip backup list"
    check_space(work.settings.free_bytes_min + stored, free_bytes(work.backups.root), hint)
