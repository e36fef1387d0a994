"""The senders' public sample payloads, with the headers that they come with, and how they sign."""

import base64
import hashlib
import hmac
from pathlib import Path

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
PAYLOADS = Path(__file__).with_name("payloads")


def payload(name):
    return (PAYLOADS / f"{name}.json").read_bytes()


def mac(signed, key=None):
    return hmac.new(key or SECRET.encode(), signed, hashlib.sha256)


def github(body, now_s, event="push", delivery="72d3162e-cc78-11e3-81ab-4c9367dc0958"):
    del now_s
    return {
        "X-GitHub-Event": event, "X-GitHub-Delivery": delivery,
        "X-Hub-Signature-256": "sha256=" + mac(body).hexdigest(),
    }  # fmt: skip


def gitlab(body, now_s, delivery="f5e5f430-f57b-4e6e-9fac-d9128cd7232f"):
    del body, now_s
    return {
        "X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": SECRET, "Idempotency-Key": delivery,
        "X-Gitlab-Event-UUID": "13792a34-cac6-4fda-95a8-c58e00a3954e",
    }  # fmt: skip


def standard(body, now_s, delivery="msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"):
    digest = mac(f"{delivery}.{now_s}.".encode() + body, KEY).digest()
    return {
        "webhook-id": delivery, "webhook-timestamp": str(now_s),
        "webhook-signature": "v1,bm90aGlzbm90aGlz v1," + base64.b64encode(digest).decode(),
    }  # fmt: skip


def bearer(body, now_s):
    del body, now_s
    return {"Authorization": f"Bearer {SECRET}"}


def grafana(body, now_s):
    del now_s
    return {"X-Grafana-Alerting-Signature": mac(body).hexdigest()}


def grafana_with_time(body, now_s):
    return {
        "X-Grafana-Alerting-Timestamp": str(now_s),
        "X-Grafana-Alerting-Signature": mac(f"{now_s}:".encode() + body).hexdigest(),
    }


def named_header(body, now_s):
    del now_s
    return {"X-Ci-Signature": "sha256=" + mac(body).hexdigest()}


def pull_request(body, now_s):
    return github(body, now_s, "pull_request")


# Each way to sign: template, payload, what signs, whether a repetition is recognized.
SENDERS = {
    "github": ("github", "github_pull_request", pull_request, True),
    "gitlab token": ("gitlab", "gitlab_push", gitlab, True),
    "gitlab signature": ("gitlab", "gitlab_merge_request", standard, True),
    "alertmanager": ("alertmanager", "alertmanager", bearer, True),
    "grafana": ("grafana", "grafana", grafana, True),
    "grafana with time": ("grafana", "grafana", grafana_with_time, True),
    "grafana token": ("grafana", "grafana", bearer, True),
    "healthchecks": ("healthchecks", "healthchecks", bearer, True),
    "json signature": ("json", "json", standard, True),
    "json header": ("json", "json", named_header, True),
    "json token": ("json", "json", bearer, False),
}
SIGNED_TIMES = ("gitlab signature", "grafana with time", "json signature")
