"""Compares a scratch server's responses with the served files."""

from contextlib import closing

from appliance.backup.manifest import BackupManifest
from appliance.backup.scratch_server import ScratchServer
from appliance.checks.backup_rules import rules_of
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir


def problems(server: ScratchServer, scratch: DataDir, manifest: BackupManifest) -> list[str]:
    """Return the differences between server, files and manifest. Raises ServerFailed, and
    Inconclusive after the deadline."""
    lines = []
    if server.db_id != manifest.db_id:
        lines.append(f"the server has db_id {server.db_id}; the manifest says {manifest.db_id}")
    for store in manifest.stores:
        if served := rules_of(store).served:
            with closing(open_database(scratch.database(store), "ro")) as connection:
                lines += served(server.get, connection)
    return lines
