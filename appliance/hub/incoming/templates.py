"""Reads each sender's payload: actor, action, subject and link."""

import re
from collections.abc import Callable, Mapping

from msgspec import json

from appliance.hub.incoming.event import (
    TEXT_LENGTH_MAX,
    DeliveredEvent,
    Payload,
    first_text,
    objects_at,
    text_at,
    url_at,
    without_empty,
)
from appliance.hub.incoming.senders import Headers
from appliance.hub.incoming.wire import BadDelivery
from appliance.kernel.blank import printable

REF_LENGTH = 8  # characters of a commit's hash
JSON_LENGTH_MAX = 1000
FIELDS_MAX = 12
_is_field = re.compile(r"(?!url$|href$)[A-Za-z0-9_-]{1,40}").fullmatch


def read_event(template: str, headers: Headers, payload: Payload) -> DeliveredEvent | None:
    """Return the payload's event; None for a ping, which tests the connection. Raises
    BadDelivery."""
    return TEMPLATES[template](headers, payload)


# -- GitHub --------------------------------------------------------------------------------------

# The object in a payload that an event is about.
_SUBJECTS = {
    "issue_comment": "issue", "pull_request_review": "pull_request",
    "pull_request_review_comment": "pull_request", "pull_request_review_thread": "pull_request",
    "discussion_comment": "discussion", "issues": "issue", "pull_request_target": "pull_request",
}  # fmt: skip
_RUNS = ("workflow_run", "workflow_job", "check_run", "check_suite", "deployment_status")


def _github(headers: Headers, payload: Payload) -> DeliveredEvent | None:
    event = text_at({"event": headers.get("x-github-event")}, "event")
    if not event:
        raise BadDelivery(
            "the header X-GitHub-Event is missing", hint="--header 'X-GitHub-Event: push'"
        )
    if event == "ping":
        return None
    where = first_text(payload, "repository.full_name", "organization.login")
    who, action = text_at(payload, "sender.login"), text_at(payload, "action")
    name = _SUBJECTS.get(event, event)
    subject = payload.get(name)
    if event == "push":
        what, lines, url = _read_push(payload)
    elif event in _RUNS:
        result = first_text(subject, "conclusion", "status", "state") or action
        run = first_text(subject, "name", "app.name") or text_at(payload, "workflow.name") or event
        branch = text_at(subject, "head_branch")
        what = f"{run} {result}" + (f" on {branch}" if branch else "")
        lines, url = [], url_at(subject, "html_url", "target_url", "details_url")
    else:
        if event == "pull_request" and isinstance(subject, dict) and subject.get("merged") is True:
            action = "merged"
        noun = "issue" if event == "issues" else event.replace("_", " ")
        what = " ".join(filter(None, (action, noun, _subject(subject))))
        lines = _remarks(payload, subject)
        url = url_at(payload, "comment.html_url", "review.html_url", f"{name}.html_url")
    fields = without_empty(
        event=event, action=action, repository=where, sender=who,
        number=text_at(subject, "number"), ref=first_text(payload, "ref", f"{name}.head.ref"),
        sha=first_text(payload, "after", f"{name}.head.sha", f"{name}.head_sha"),
        conclusion=text_at(subject, "conclusion"),
    )  # fmt: skip
    return _read_item(
        where, who, what, lines, url or url_at(payload, "repository.html_url"), fields
    )


def _read_push(payload: Payload) -> tuple[str, list[str], str]:
    ref, commits = text_at(payload, "ref"), objects_at(payload, "commits")
    kind, _, name = ref.removeprefix("refs/").partition("/")
    target = f"tag {name}" if kind == "tags" else name or ref
    url = url_at(payload, "compare", "head_commit.url", "project.web_url")
    zeros = "0" * 40
    if payload.get("deleted") is True or text_at(payload, "after") == zeros:
        return f"deleted {target}", [], url
    count = text_at(payload, "total_commits_count") or str(len(commits))
    forced = "force-" if payload.get("forced") is True else ""
    noun = "commit" if count == "1" else "commits"
    return f"{forced}pushed {count} {noun} to {target}", [_commit(c) for c in commits], url


def _commit(commit: Payload) -> str:
    message = commit.get("message")
    first = {"line": message.split("\n", 1)[0]} if isinstance(message, str) else {}
    author = first_text(commit, "author.name", "author.username")
    return f"{text_at(commit, 'id')[:REF_LENGTH]} {text_at(first, 'line')} ({author})"


def _subject(subject: object) -> str:
    number = first_text(subject, "number", "iid")
    title = first_text(subject, "title", "name", "tag_name", "full_name", "login", "ref")
    return ": ".join(filter(None, (number and f"#{number}", title)))


def _remarks(payload: Payload, subject: object) -> list[str]:
    head, base = text_at(subject, "head.ref"), text_at(subject, "base.ref")
    branches = f"{head} → {base}" if head and base else ""
    return [*filter(None, (branches, first_text(payload, "comment.body", "review.body")))]


# -- GitLab --------------------------------------------------------------------------------------


def _gitlab(_headers: Headers, payload: Payload) -> DeliveredEvent:
    kind = first_text(payload, "object_kind", "event_name")
    if not kind:
        raise BadDelivery("the payload has no object_kind")
    where = first_text(payload, "project.path_with_namespace", "project_name", "group.full_path")
    who = first_text(payload, "user.username", "user_username", "user_name", "user.name")
    about = payload.get("object_attributes")
    action = first_text(about, "action", "detailed_status", "status") or first_text(
        payload, "build_status", "status", "action"
    )
    lines: list[str] = []
    url = url_at(about, "url") or url_at(payload, "url", "deployable_url")
    if kind in ("push", "tag_push"):
        what, lines, url = _read_push(payload)
    elif kind == "note":
        target = payload.get(text_at(about, "noteable_type").lower()) or payload.get(
            "merge_request"
        )
        what, lines = f"commented on {_subject(target)}", [text_at(about, "note")]
    else:
        name = first_text(about, "ref", "name") or first_text(payload, "build_name", "name", "tag")
        subject = _subject(about) or name
        state = f"({action})" if action else ""
        what = " ".join(filter(None, (kind.replace("_", " "), subject, state)))
    fields = without_empty(
        event=kind, action=action, repository=where, sender=who, iid=text_at(about, "iid"),
        ref=first_text(payload, "ref", "object_attributes.ref", "object_attributes.source_branch"),
        sha=first_text(payload, "checkout_sha", "object_attributes.sha", "sha"),
    )  # fmt: skip
    return _read_item(where, who, what, lines, url or url_at(payload, "project.web_url"), fields)


# -- alerts --------------------------------------------------------------------------------------


def _alerts(_headers: Headers, payload: Payload) -> DeliveredEvent:
    """Read Alertmanager's payload, which Grafana's extends."""
    alerts, status = objects_at(payload, "alerts"), text_at(payload, "status")
    if not alerts or not status:
        raise BadDelivery("the payload has no status and alerts")
    name = first_text(payload, "commonLabels.alertname", "groupLabels.alertname", "receiver")
    title = text_at(payload, "title") or f"[{status.upper()}:{len(alerts)}] {name}"
    url = url_at(alerts[0], "dashboardURL", "generatorURL") or url_at(payload, "externalURL")
    fields = without_empty(
        event="alert", status=status, alertname=name, group=text_at(payload, "groupKey"),
        severity=text_at(payload, "commonLabels.severity"), alerts=str(len(alerts)),
        starts_at=text_at(alerts[0], "startsAt"),
    )  # fmt: skip
    return DeliveredEvent(title, [_alert(alert) for alert in alerts], url, fields)


def _alert(alert: Payload) -> str:
    summary = first_text(alert, "annotations.summary", "annotations.description")
    name, instance = text_at(alert, "labels.alertname"), text_at(alert, "labels.instance")
    source = f" ({instance})" if instance else ""
    return f"{text_at(alert, 'status')}: {name}{source}" + (f": {summary}" if summary else "")


def _healthchecks(_headers: Headers, payload: Payload) -> DeliveredEvent:
    name, status = text_at(payload, "name"), text_at(payload, "status")
    if not name or not status:
        raise BadDelivery("the payload has no name and status", hint="use $JSON as request body")
    about = {"tags": text_at(payload, "tags"), "last ping": text_at(payload, "last_ping")}
    lines = [text_at(payload, "desc"), *(f"{key}: {text}" for key, text in about.items() if text)]
    fields = without_empty(event="check", check=name, status=status, slug=text_at(payload, "slug"))
    return DeliveredEvent(f"{name} is {status}", [*filter(None, lines)], "", fields)


# -- plain JSON ------------------------------------------------------------------------------------


def _json(_headers: Headers, payload: Payload) -> DeliveredEvent:
    title = first_text(payload, "title", "subject", "summary", "message", "text", "event", "type")
    text = first_text(payload, "text", "message", "body", "description")
    if not title:
        encoded = printable(json.encode(payload).decode()[:JSON_LENGTH_MAX])
        texts = range(0, len(encoded), TEXT_LENGTH_MAX)
        title, text = "JSON", ""
        lines = [encoded[start : start + TEXT_LENGTH_MAX] for start in texts]
    else:
        lines = [text] if text and text != title else []
    url = url_at(payload, "url", "link", "html_url")
    fields = {name: text_at(payload, name) for name in payload if _is_field(name)}
    chosen = list(without_empty(**fields).items())[:FIELDS_MAX]
    return DeliveredEvent(title, lines, url, dict(chosen))


def _read_item(
    where: str, who: str, what: str, lines: list[str], url: str, fields: dict[str, str]
) -> DeliveredEvent:
    subject = f"{who} {what}" if who else what
    title = f"{where}: {subject}" if where else subject
    return DeliveredEvent(title.strip(), [*filter(None, lines)], url, fields)


TEMPLATES: Mapping[str, Callable[[Headers, Payload], DeliveredEvent | None]] = {
    "github": _github,
    "gitlab": _gitlab,
    "alertmanager": _alerts,
    "grafana": _alerts,
    "healthchecks": _healthchecks,
    "json": _json,
}
