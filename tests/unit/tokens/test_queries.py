"""Pages of tokens."""

import msgspec

from appliance.tokens import wire


def test_the_list_is_limited_in_bytes(fixture):
    """Tokens with the maximum number of scopes, all created in the same millisecond."""
    scopes = [f"streams:{number:04}{'x' * 250}:enqueue" for number in range(wire.SCOPES_MAX)]
    ids = [fixture.create(f"bot{number}", scopes).token.id for number in range(8)]
    seen, page = [], fixture.tokens.list_all()
    while True:
        assert len(msgspec.json.encode(page)) <= 1 << 20
        seen += [token.id for token in page.tokens]
        if not page.has_more:
            break
        page = fixture.tokens.list_all(wire.TokensQuery(after=page.next))
    assert len(page.tokens) < len(seen)
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(ids)
