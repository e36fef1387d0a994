"""Pages of tokens."""

from appliance.tokens import wire
from tests.support.pages import pages_of


def test_the_list_is_limited_in_bytes(fixture):
    """Tokens with the maximum number of scopes, all created in the same millisecond."""
    scopes = [f"streams:{number:04}{'x' * 250}:enqueue" for number in range(wire.SCOPES_MAX)]
    ids = [fixture.create(f"bot{number}", scopes).token.id for number in range(8)]
    pages = pages_of(lambda after: fixture.tokens.list_all(wire.TokensQuery(after=after)), "")
    seen = [token.id for page in pages for token in page.tokens]
    assert len(pages) > 1
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(ids)
