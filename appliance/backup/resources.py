"""Serves the backup HTTP routes, for administrators."""

from appliance.backup import wire
from appliance.backup.errors import BackupDamaged, BackupNotFound, BackupRunning, VersionRefused
from appliance.backup.service import Backups
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_with
from appliance.workspace.command_runner import CommandTooSlow


def routes(backups: Backups) -> list[Route]:
    return [
        Route("/api/v1/backups", Responders(
            get=reply_with(backups.list_newest), post=reply_with(backups.start, 202),
        ), {
            "GET": Operation(wire.READ, reply=wire.BackupList,
                             summary="List the newest 100 backups, newest first"),
            "POST": Operation(wire.CREATE, reply=wire.BackupAccepted, status=202,
                              errors=(BackupRunning,),
                              summary="Start a backup now, which is verified afterwards",
                              audited=True, in_maintenance=True),
        }),
        Route("/api/v1/backups/{name}", Responders(get=reply_with(backups.find)), {
            "GET": Operation(wire.READ, reply=wire.BackupDetails,
                             errors=(BackupNotFound, BackupDamaged, VersionRefused),
                             summary="Get a backup with its stores' rows"),
        }),
        Route("/api/v1/backups/{name}/plan", Responders(get=reply_with(backups.plan)), {
            "GET": Operation(wire.ADMIN, reply=wire.PlannedRestore,
                             errors=(BackupNotFound, BackupDamaged, VersionRefused, BackupRunning,
                                     wire.PlanRefused, CommandTooSlow),
                             summary="Show what a restore of a backup would lose"),
        }),
        Route("/api/v1/backups/{name}/verify", Responders(post=reply_with(backups.verify, 202)), {
            "POST": Operation(wire.CREATE, reply=wire.BackupAccepted, status=202,
                              errors=(BackupNotFound, BackupDamaged, VersionRefused,
                                      BackupRunning),
                              summary="Start to verify a backup, as `agentlip backup verify` does",
                              audited=True, in_maintenance=True),
        }),
    ]  # fmt: skip
