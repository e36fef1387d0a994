"""The appliance folders whose disks the forecast watches."""

from collections.abc import Mapping
from pathlib import Path

from appliance.backup.settings import BackupSettings
from appliance.export.settings import ExportSettings
from appliance.host import Host


def watched_folders(host: Host) -> Mapping[str, tuple[Path, str]]:
    """Return each folder with the command that reduces its contents, by content."""
    data, workspace = host.datadir.dir, host.datadir.workspace
    return {
        "workspace": (data, ""),
        "backups": (workspace / host.section(BackupSettings).directory,
                    "agentlip backup prune; keep fewer: keep_* in [backup]"),
        "exports": (workspace / host.section(ExportSettings).export_dir,
                    "agentlip export compact; or move old segments to an archive"),
        "job output": (data / "jobs", "agentlip jobs list; lower the jobs' output_bytes_max"),
        "logs": (data / "logs", "lower log.rotate_bytes; log.level, log.access"),
        "files saved by repairs": (data / "repairs", "remove the oldest folders in it"),
    }  # fmt: skip
