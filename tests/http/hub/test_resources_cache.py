"""Repeated reads: what was committed shows at once, and callers share only what each may read."""

import itertools


def test_each_commit_shows_in_the_next_read(hub):
    """Two connections: the writer's response comes after the commit, so the next read has it."""
    channel, topic = hub.channel_with_topic("general")
    reader = hub.connect()
    page = f"/api/v1/messages?topic_id={topic}&limit=3"
    for number in range(60):
        created = hub.send(topic, f"message {number}")["message"]["id"]
        for _ in range(1 + number % 3):
            assert reader.get(page).body["messages"][0]["id"] == created
            (event,) = reader.get("/api/v1/events?tail=1").body["events"]
            assert event["entity"]["id"] == created
        if number % 5 == 0:
            hub.http.patch(
                f"/api/v1/messages/{created}", {"op": "edit", "content_raw": f"edited {number}"}
            )
            assert reader.get(page).body["messages"][0]["content_raw"] == f"edited {number}"
        title = f"topic {number}"
        hub.topic(channel, title)
        titles = [
            each["title"]
            for each in reader.get(f"/api/v1/channels/{channel}/topics").body["topics"]
        ]
        assert title in titles


def test_limited_tokens_never_get_other_channels_from_a_repeated_read(hub):
    topics = dict(hub.channel_with_topic(name) for name in ("open", "closed"))
    for topic in topics.values():
        hub.send(topic, "hello")
    clients = {None: hub.http}
    for channel in topics:
        scopes = [f"hub:read@{channel}"]
        token = hub.made(hub.http.post("/api/v1/tokens", {"name": channel, "scopes": scopes}))
        clients[channel] = hub.connect(token["secret"])
    for (own, client), _ in itertools.product(clients.items(), range(3)):
        listed = {each["id"] for each in client.get("/api/v1/channels").body["channels"]}
        assert listed == {own} or (own is None and listed >= set(topics))
        for channel, topic in topics.items():
            allowed = own in (None, channel)
            for query in (f"topic_id={topic}", f"channel_id={channel}"):
                status = client.get(f"/api/v1/messages?{query}").status
                assert status == (200 if allowed else 403)
