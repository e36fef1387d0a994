"""HTTP routes of backups, for administrators."""

from typing import Any

import falcon

from appliance.backup import wire
from appliance.backup.errors import BackupDamaged, BackupNotFound, BackupRunning, VersionRefused
from appliance.backup.service import Backups
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class BackupsResource:
    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._backups.list_page(req.context.query))

    def on_post(self, req: Any, resp: falcon.Response) -> None:
        del req
        reply(resp, self._backups.start(), 202)

    def on_get_item(self, req: Any, resp: falcon.Response, name: str) -> None:
        del req
        reply(resp, self._backups.find(name))

    def on_post_verify(self, req: Any, resp: falcon.Response, name: str) -> None:
        del req
        reply(resp, self._backups.verify(name), 202)


def routes(backups: Backups) -> list[Route]:
    resource = BackupsResource(backups)
    return [
        Route("/api/v1/backups", resource, {
            "GET": Operation(wire.READ, reply=wire.BackupList, query=wire.BackupsQuery,
                             summary="List backups, newest first, and the state of the schedule"),
            "POST": Operation(wire.CREATE, reply=wire.BackupAccepted, status=202,
                              errors=(BackupRunning,),
                              summary="Start a backup now, which is verified afterwards"),
        }),
        Route("/api/v1/backups/{name}", resource, {
            "GET": Operation(wire.READ, reply=wire.BackupDetails,
                             errors=(BackupNotFound, BackupDamaged, VersionRefused),
                             summary="Get a backup with the rows of its stores"),
        }, suffix="item"),
        Route("/api/v1/backups/{name}/verify", resource, {
            "POST": Operation(wire.CREATE, reply=wire.BackupAccepted, status=202,
                              errors=(BackupNotFound, BackupRunning),
                              summary="Start to verify a backup by restoring it to a scratch"
                                      " directory"),
        }, suffix="verify"),
    ]  # fmt: skip
