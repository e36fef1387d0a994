"""The folders of the appliance whose disks the forecast watches."""

from appliance.backup.settings import BackupSettings
from appliance.export.settings import ExportSettings
from appliance.forecast.subsystem import ForecastNeeds, ForecastSubsystem
from appliance.host import Host
from appliance.roles import RolesSettings


def forecast_of(host: Host) -> ForecastSubsystem:
    data, workspace = host.datadir.dir, host.datadir.workspace
    folders = {
        "workspace": (data, ""),
        "backups": (workspace / host.section(BackupSettings).directory,
                    "agentlip backup prune; keep fewer: keep_* of [backup]"),
        "exports": (workspace / host.section(ExportSettings).export_dir,
                    "agentlip export tidy; or move old segments to an archive"),
        "output of jobs": (data / "jobs", "agentlip jobs list; lower output_bytes_max of jobs"),
        "logs": (data / "logs", "lower log.rotate_bytes; log.level, log.access"),
        "saved files of repairs": (data / "repairs", "remove the oldest folders in it"),
    }  # fmt: skip
    return ForecastSubsystem(host, ForecastNeeds(folders, host.section(RolesSettings).stores))
