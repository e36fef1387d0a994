"""The built-in `urls` finds web addresses, and starts no process for messages without one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub import events
from appliance.hub.plugins import output, queries
from appliance.hub.plugins.builtin import urls


def raw(value):
    return msgspec.Raw(msgspec.json.encode(value))


def extracted(text, **config):
    return [item["value_json"]["url"] for item in urls.extract({"content_raw": text}, config)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://example.com/a.", ["https://example.com/a"]),
        ("(https://example.com/a)", ["https://example.com/a"]),
        ("https://en.example.org/wiki/A_(b), and", ["https://en.example.org/wiki/A_(b)"]),
        ("[x](https://example.com/a?b=1#c)!", ["https://example.com/a?b=1#c"]),
        ("<https://example.com>", ["https://example.com"]),
        ("HTTP://Example.com/ http://example.com", ["HTTP://Example.com/"]),
        ("http://a.example:80/ http://a.example/", ["http://a.example:80/"]),
        ("http://[::1]:8080/x", ["http://[::1]:8080/x"]),
        ("https://user:secret@example.com/ ftp://example.com javascript:alert(1)", []),
        ("https:// http://[bad https://", []),
        ("https://example.com:99999/ https://", []),
        ("https://example.com/" + "a" * 2100, []),
    ],
)
def test_addresses_are_found(text, expected):
    assert extracted(text) == expected


def test_allowed_and_blocked_domains_include_subdomains():
    text = "https://a.example.com https://example.com https://notexample.com https://b.example.com"
    assert extracted(text, allow_domains=["example.com"], block_domains=["b.example.com"]) == [
        "https://a.example.com",
        "https://example.com",
    ]
    assert extracted("https://EXAMPLE.com./", block_domains=["example.com"]) == []
    with pytest.raises(ValueError, match="allow_domains"):
        extracted("", allow_domains="example.com")


def test_extracted_urls_can_be_stored():
    text = "http://e.com/%zz http://ä.example/ü https://x.example/" + "y" * 1000 + " http://e.com"
    results = urls.extract({"content_raw": text}, {})
    assert len(output.extracts(raw(results), "msg_1")) == len(results) == 4


@given(st.text(alphabet="htps:/.@[]()ae1 \n", max_size=80))
def test_url_extractor_returns_valid_output_for_any_text(text):
    for content in (text, "https://" + text):
        results = urls.extract({"content_raw": content}, {})
        output.extracts(raw(results), "msg_1")


def attached(plugin_env):
    return plugin_env.env.rows("SELECT kind, value_json, source_message_id FROM topic_attachments")


def test_no_process_is_started_for_messages_without_an_address(plugin_env):
    plugin_env.use(urls=True)
    for text in ("hello", "http", "a: //b"):
        plugin_env.post(text)
    plugin_env.rounds()
    runner = plugin_env.runner("urls")
    assert (runner.lag, runner.pending, runner.plugin.done) == (0, 0, 0)
    assert not runner.plugin.worker.running
    assert attached(plugin_env) == []


def test_a_slash_that_another_program_escaped_is_seen(plugin_env):
    plugin_env.use(urls=True)
    plugin_env.store.write(_of_another_program, plugin_env.channel_id)
    (entry,) = plugin_env.store.read(queries.log_piece, 0, 2**62, 1000, "://")[-1:]
    assert (entry[1], bool(entry[4])) == ("message.created", True)


def _of_another_program(tx, channel_id):
    data = rb'{"message":{"content_raw":"https:\/\/example.com"}}'
    events.append(tx, "message.created", ("message", "m"), data, channel_id=channel_id)
