"""The message that each public sample payload becomes, and payloads beside the samples."""

import json

import pytest

from appliance.hub.incoming.event import LINES_MAX, TEXT_LENGTH_MAX
from appliance.hub.incoming.templates import read_event
from tests.unit.hub.incoming.samples import payload

TEXTS = {
    ("github", "github_pull_request", "pull_request"): """\
**Codertocat/Hello-World: Codertocat opened pull request #2: \
Update the README with new information.**
- changes → master
https://github.com/Codertocat/Hello-World/pull/2""",
    ("github", "github_push", "push"): """\
**Codertocat/Hello-World: Codertocat deleted tag simple-tag**
https://github.com/Codertocat/Hello-World/compare/6113728f27ae...000000000000""",
    ("github", "github_issues", "issues"): """\
**Codertocat/Hello-World: Codertocat opened issue #1: Spelling error in the README file**
https://github.com/Codertocat/Hello-World/issues/1""",
    ("github", "github_workflow_run", "workflow_run"): """\
**octo-org/octo-repo: Codertocat test success on master**
https://github.com/octo-org/octo-repo/actions/runs/289782451""",
    ("gitlab", "gitlab_push", ""): """\
**mike/diaspora: jsmith pushed 4 commits to master**
- b6568db1 Update Catalan translation to e38cb41. (Jordi Mallach)
- da156088 fixed readme (GitLab dev user)
http://example.com/mike/diaspora""",
    ("gitlab", "gitlab_merge_request", ""): """\
**gitlabhq/gitlab-test: root merge request #1: MS-Viewport (open)**
http://example.com/diaspora/merge_requests/1""",
    ("gitlab", "gitlab_pipeline", ""): """\
**gitlab-org/gitlab-test: root pipeline #3: Pipeline for branch: master (success)**
http://example.com/gitlab-org/gitlab-test/-/pipelines/31""",
    ("alertmanager", "alertmanager", ""): """\
**\\[FIRING:1\\] ProbeFailure**
- firing: ProbeFailure (https://server.example.org): BlackBox Probe Failure: https://server.example.org
http://prometheus.example.org:9090/graph?g0.expr=probe_success+%3D%3D+0&g0.tab=1""",
    ("grafana", "grafana", ""): """\
**\\[FIRING:2\\] (blue)**
- firing: High memory usage: This alert was triggered for zone us-1
- firing: High CPU usage: This alert was triggered for zone eu-1
https://play.grafana.org/alerting/1afz29v7z/edit""",
    ("healthchecks", "healthchecks", ""): """\
**Database Backup is down**
- Runs ~/db-backup.sh
- tags: production db
- last ping: 2020-03-23T10:19:32+00:00""",
    ("json", "json", ""): """\
**Deploy finished**
- Build 7 is live.
https://ci.example.com/7""",
}  # fmt: skip


def read(template, body, event=""):
    return read_event(template, {"x-github-event": event}, body)


@pytest.mark.parametrize("sample", TEXTS, ids=lambda sample: sample[1])
def test_sample_payload_becomes_its_message(sample):
    template, name, event = sample
    assert read(template, json.loads(payload(name)), event).markdown() == TEXTS[sample]


def test_fields_of_a_pull_request_are_for_programs():
    event = read("github", json.loads(payload("github_pull_request")), "pull_request")
    assert event.fields == {
        "event": "pull_request", "action": "opened", "repository": "Codertocat/Hello-World",
        "sender": "Codertocat", "number": "2", "ref": "changes",
        "sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821",
    }  # fmt: skip


def test_merged_pull_request_is_not_just_closed():
    body = json.loads(payload("github_pull_request"))
    body["action"], body["pull_request"]["merged"] = "closed", True
    assert " merged pull request #2" in read("github", body, "pull_request").title


def test_comment_shows_its_beginning_and_its_link():
    body = json.loads(payload("github_issues"))
    body["comment"] = {"body": "Fixed\nin 7.", "html_url": "https://github.com/x/1#c"}
    event = read("github", body | {"action": "created"}, "issue_comment")
    assert event.title.endswith("created issue comment #1: Spelling error in the README file")
    assert (list(event.lines), event.url) == (["Fixed in 7."], "https://github.com/x/1#c")


def test_many_commits_are_counted():
    body = json.loads(payload("gitlab_push"))
    body["commits"] *= 20
    text = read("gitlab", body).markdown()
    assert text.count("\n- ") == LINES_MAX + 1
    assert "\n- and 30 more\n" in text


def test_long_texts_are_cut():
    event = read("json", {"title": "x" * 100_000, "text": "y" * 100_000})
    assert [len(event.title), len(event.lines[0])] == [TEXT_LENGTH_MAX, TEXT_LENGTH_MAX]
    assert event.title.endswith("…")


def test_json_without_known_fields_is_shown_as_it_is():
    event = read("json", {"build": 7, "ok": [True]})
    assert event.markdown() == '**JSON**\n- {"build":7,"ok":\\[true\\]}'
    assert event.fields == {"build": "7"}


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "https://", "https://a b", "https://x/<b>", "ftp://x", 7, None,
     "https://x/" + "y" * 2000, "https://x/\u202e", "//x"],
)  # fmt: skip
def test_address_that_may_not_be_linked_is_left_out(url):
    assert read("json", {"title": "x", "url": url}).url == ""


def test_mention_in_an_address_has_no_effect():
    assert read("json", {"title": "x", "url": "https://x/@all"}).url == "https://x/%40all"


def test_unknown_gitlab_and_github_events_have_a_text():
    assert read("github", {"action": "created"}, "star").title == "created star"
    assert read("gitlab", {"object_kind": "emoji"}).title == "emoji"
    assert read("gitlab", {"object_kind": "note"}).title == "commented on"
