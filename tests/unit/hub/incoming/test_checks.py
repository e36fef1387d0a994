"""The doctor's check of incoming webhooks."""

ENDPOINT = (
    "INSERT INTO x_incoming (name, template, secret, topic_id, stream, to_json, created_at)"
    " VALUES (?1, 'json', 'x', ?2, ?3, '[]', '2026-01-01T00:00:00.000Z')"
)


def test_endpoint_without_its_topic_is_found_and_others_are_not(workspace):
    time = "2026-01-01T00:00:00.000Z"
    workspace.execute("INSERT INTO channels VALUES ('ch_1', 'ops', NULL, ?)", time)
    workspace.execute("INSERT INTO topics VALUES ('topic_1', 'ch_1', 't', ?1, ?1)", time)
    workspace.execute(ENDPOINT, "whole", "topic_1", None)
    workspace.execute(ENDPOINT, "queue", None, "builds")
    workspace.execute(ENDPOINT, "lost", "topic_gone", None)
    problems = [(each.subject, each.hint) for each in workspace.find("incoming.topics")]
    assert problems == [("incoming webhook lost", "agentlip incoming remove lost")]
