"""What is stored of the use of tokens, and when ended tokens are removed."""

from appliance.tokens import writes


def test_last_use_counts_lookups_and_streams(fixture):
    issued = fixture.create()
    assert fixture.book.take_used() == set()
    principal = fixture.book.find(issued.secret)
    assert fixture.book.take_used() == {issued.token.id}
    unwatch = fixture.book.watch(principal, lambda: None)
    assert fixture.book.take_used() == {issued.token.id}
    unwatch()
    assert fixture.book.take_used() == set()
    fixture.file.write(writes.record_use, [issued.token.id], 2000)
    fixture.file.write(writes.record_use, [issued.token.id], 1000)  # a clock that went back
    (used,) = [t.last_used_at for t in fixture.tokens.list_all().tokens if t.name == "bot"]
    assert used == "1970-01-01T00:00:02.000Z"


def test_only_long_ended_tokens_are_pruned(fixture):
    revoked, expired = fixture.create("a"), fixture.create("b", days=1)
    stays = fixture.create("c")
    fixture.rotate(revoked.token.id, 5)
    fixture.tokens.revoke(revoked.token.id)
    fixture.clock.pass_seconds(2 * 86_400)
    assert fixture.file.write(writes.prune, fixture.clock.now_ms()) == 2
    left = {token.id for token in fixture.tokens.list_all().tokens}
    assert left == {"server", stays.token.id}
    assert expired.token.id not in left
