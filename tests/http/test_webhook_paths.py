"""The path of a webhook's URL can be a credential: nothing lists or logs it."""

import json

import pytest

from appliance.audit.log.record import redact
from appliance.export.logs import LOGS
from appliance.export.source import open_log
from appliance.kernel.log import without_path
from tests.support.commands import agentlip
from tests.support.servedhub import serve
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

TIME = "2026-01-01T00:00:00Z"
PLANTED = "B0K3nOfTheChannel"
SETTINGS = """
[log]
level = "debug"
access = "all"
[notify]
to = ["{url}/{secret}"]
[[courier.triggers]]
id = "page"
when = {{ to = "alerts" }}
do = [{{ action = "webhook", to = "{url}/{secret}?key={secret}" }}]
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://chat.example.com/hooks/abc", "https://chat.example.com/…"),
        ("queue:https://chat.example.com:8443/hooks/abc?x=1#y", "queue:https://chat.example.com:8443/…"),
        ("https://chat.example.com?key=abc", "https://chat.example.com/…"),
        ("https://user:abc@chat.example.com/x", "https://chat.example.com/…"),
        ('{"to":"http://a.example/abc","id":"x"}', '{"to":"http://a.example/…","id":"x"}'),
        ("mailto:ops@example.com", "mailto:ops@example.com"),
        ("topic:ops/alerts", "topic:ops/alerts"),
        ("hook_01", "hook_01"),
    ],
)  # fmt: skip
def test_url_is_shown_without_its_path(text, shown):
    assert without_path(text) == shown
    assert redact({"to": text})["to"] == shown


@pytest.mark.slow
def test_path_of_a_webhook_is_nowhere_but_at_its_receiver(tmp_path):
    with webhook_receiver() as receiver:
        settings = SETTINGS.format(url=receiver.url, secret=PLANTED)
        with serve(tmp_path, settings=settings) as hub:
            tested = agentlip("notify", "test", "--json", cwd=tmp_path)
            assert tested.code == 0
            body = {"to": "alerts", "envelope": {"id": "e", "ts": TIME, "type": "t", "payload": 1}}
            assert hub.http.post("/v1/enqueue", body).status == 200
            until(lambda: len(receiver.got) == 2, what="both messages")
            assert all(PLANTED in request.path for request in receiver.got)
            hook = {"url": f"https://hooks.example.com/{PLANTED}"}
            hub.made(hub.http.post("/api/v1/webhooks", hook))
            until(lambda: "done" in sends(hub), what="a delivery")
            mesh = "/broker/v1/meshes"
            hub.made(hub.http.post(mesh, {"slug": "lab"}))
            hub.made(hub.http.post(f"{mesh}/lab/webhooks", {"url": hook["url"]}))
            for path in (
                "/api/v1/webhooks", f"{mesh}/lab/webhooks",
                "/v1/rules", "/api/v1/settings", "/api/v1/audit", "/metrics", "/api/v1/doctor",
                *(f"/v1/outbox/inspect?id={row['id']}" for row in json.loads(sends(hub))["sends"]),
            ):  # fmt: skip
                shown = hub.http.get(path)
                assert (shown.status, PLANTED.encode() in shown.raw) == (200, False), path
            assert "127.0.0.1" in sends(hub)
            assert PLANTED not in sends(hub) + tested.out + hub.log_text
        with open_log(hub.datadir, LOGS["outbox"]) as log:
            rows = list(log._query(log.log.rows_after, 0, 100))
        assert rows
        assert PLANTED not in str(rows)


def sends(hub):
    return hub.http.get("/v1/outbox/sends").raw.decode()
