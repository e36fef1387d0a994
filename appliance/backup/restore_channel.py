"""Makes a new workspace with one channel of a backup: its topics, messages, attachments, events.

The workspace is a new one, with ids, tokens and an epoch of its own. Events keep their order and
get new ids from 1.
"""

import tempfile
from contextlib import closing
from importlib import import_module
from pathlib import Path

import msgspec

import appliance
from appliance.backup import restore_job
from appliance.backup.backup_directory import writing
from appliance.backup.errors import VerificationFailed
from appliance.backup.keys import Identities
from appliance.backup.restore_job import RestoreJob
from appliance.backup.unpack import unpack
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of, path_of
from appliance.kernel.store_files import open_database
from appliance.workspace import manifest, schema, swap
from appliance.workspace.datadir import BESIDE, DataDir
from appliance.workspace.swap import SwapJournal, SwappedFile

HUB = next(store for store, each in DECLARATIONS.items() if each.numbers_events)


class ChannelWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """The new workspace, or with `made` false the one that would be made. `rows`: by table."""

    made: bool
    workspace: str
    backup: str
    cut_at: str
    channel_id: str
    channel: str
    db_id: str
    rows: dict[str, int]


def make(
    job: RestoreJob, channel: str, identities: Identities | None, clock: Clock, log: Log
) -> ChannelWorkspace:
    """`channel`: its name or id. Raises what a restore raises, Invalid for an unknown channel."""
    restore_job.check(job)
    restore_job.make_folders(job.target)
    with swap.hold_stopped(job.target, clock):
        new = DataDir(swap.new_folder(job.target))
        try:
            source = _source(job, identities, job.target.dir / swap.FOLDER / "source", clock, log)
            schema.create_workspace(new, clock=clock, log=log)
            done = _copy(job, channel, source, new.database(HUB))
            db_id = manifest.read(new, "rw").stores[HUB]
        except BaseException:
            swap.abandon(job.target)
            raise
        began = iso(clock.now_ms())
        name = job.manifest.name
        files = tuple(SwappedFile(path) for path in _files(new))
        swap.commit(
            job.target, SwapJournal(state="unpacked", began_at=began, name=name, files=files)
        )
        schema.make_folders(job.target)
        swap.finish(job.target)
    return msgspec.structs.replace(done, made=True, db_id=db_id)


def plan(
    job: RestoreJob, channel: str, identities: Identities | None, clock: Clock, log: Log
) -> ChannelWorkspace:
    """What `make` would make. Writes to a temporary directory only (TMPDIR)."""
    restore_job.check(job)
    with tempfile.TemporaryDirectory(prefix="agentlip-restore-") as folder:
        source = _source(job, identities, Path(folder) / "source", clock, log)
        new = DataDir(Path(folder) / "new")
        schema.create_workspace(new, clock=clock, log=log, stores=(HUB,))
        return _copy(job, channel, source, new.database(HUB))


def sentence(done: ChannelWorkspace) -> str:
    counted = ", ".join(
        f"{done.rows[table]} {table.replace('_', ' ')}"
        for table in ("topics", "messages", "topic_attachments", "events")
    )
    verb = "restored" if done.made else "would restore"
    return f"{verb} channel {done.channel} of {done.cut_at} in {done.workspace}: {counted}"


def _source(
    job: RestoreJob, identities: Identities | None, folder: Path, clock: Clock, log: Log
) -> Path:
    """The hub's store of the backup in its own directory, migrated to this program's schema."""
    wanted = path_of(HUB)
    with writing():
        folder.mkdir(mode=0o700, parents=True)
    unpack(job.backup_path, job.manifest, folder, identities, only=lambda file: file.path == wanted)
    file = folder / wanted
    schema.migrate(file, HUB, clock=clock, log=log)
    return file


def _copy(job: RestoreJob, channel: str, source: Path, target: Path) -> ChannelWorkspace:
    with closing(open_database(target, "rw")) as connection:
        connection.execute("ATTACH ? AS source", (f"{source.absolute().as_uri()}?mode=ro",))
        connection.execute("BEGIN")
        copied = import_module(declaration_of(HUB).restored, appliance.__name__).copy_channel(
            connection, channel
        )
        if copied is None:
            raise Invalid(
                f"the backup has no channel {channel!r}",
                hint=f"list those of the backup: agentlip backup show {job.manifest.name}",
            )
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise VerificationFailed(f"a row of {broken[0]} refers to another channel")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return ChannelWorkspace(
        made=False,
        workspace=str(job.target.workspace),
        backup=job.manifest.name,
        cut_at=job.manifest.cut_at,
        channel_id=copied.channel_id,
        channel=copied.name,
        db_id="",
        rows=copied.rows,
    )


def _files(new: DataDir) -> list[str]:
    """The files of a new workspace, without locks and what SQLite keeps beside its files."""
    return sorted(
        path.relative_to(new.workspace).as_posix()
        for path in new.workspace.rglob("*")
        if path.is_file() and path.parent.name != "locks" and not path.name.endswith(BESIDE)
    )
