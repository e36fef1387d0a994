"""Plugins on HTTP: status and reprocessing for `hub:admin`, enrichments for every reader."""

from typing import Any

import falcon

from appliance.hub import wire as hub_wire
from appliance.hub.access import READ
from appliance.hub.plugins import wire
from appliance.hub.plugins.service import Plugins
from appliance.hub.wire import ADMIN
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class PluginsResource:
    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._plugins.list_all())

    def on_post_re_enrich(self, req: Any, resp: falcon.Response, command: wire.ReEnrich) -> None:
        reply(resp, self._plugins.re_enrich(command), 202)

    def on_post_re_extract(self, req: Any, resp: falcon.Response, command: wire.ReExtract) -> None:
        reply(resp, self._plugins.re_extract(command))

    def on_post_apply(self, req: Any, resp: falcon.Response, command: wire.ApplyChanges) -> None:
        reply(resp, self._plugins.apply(command))

    def on_get_enrichments(self, req: Any, resp: falcon.Response, message_id: str) -> None:
        reply(resp, self._plugins.enrichments(message_id, req.context.principal))


def routes(plugins: Plugins) -> list[Route]:
    resource = PluginsResource(plugins)
    return [
        Route("/api/v1/plugins", resource, {
            "GET": Operation(ADMIN, reply=wire.PluginList,
                             summary="List plugins with their state"),
        }),
        Route("/api/v1/plugins/re-enrich", resource, {
            "POST": Operation(ADMIN, body=wire.ReEnrich, reply=wire.ReEnrichTaken, status=202,
                              errors=(wire.NoSuchPlugin,), example={"since": 0},
                              summary="Reprocess the event log with plugins, from an event on"),
        }, suffix="re_enrich"),
        Route("/api/v1/plugins/re-extract", resource, {
            "POST": Operation(ADMIN, body=wire.ReExtract, reply=wire.ReExtracted,
                              errors=(wire.NoSuchPlugin, hub_wire.NoSuchMessage),
                              summary="Run extractors on one message again, now"),
        }, suffix="re_extract"),
        Route("/api/v1/plugins/apply", resource, {
            "POST": Operation(ADMIN, body=wire.ApplyChanges, reply=wire.ChangesApplied,
                              errors=(wire.NoSuchPlugin,),
                              summary="Store results of a linkifier that were computed elsewhere"),
        }, suffix="apply"),
        Route("/api/v1/messages/{message_id}/enrichments", resource, {
            "GET": Operation(READ, reply=wire.EnrichmentList,
                             summary="List enrichments of a message's current text",
                             by_channel=True),
        }, suffix="enrichments"),
    ]  # fmt: skip
