"""Results of a linkifier that were computed elsewhere: stored as its own are, or dropped."""

import hashlib
import json

import msgspec
import pytest

from appliance.hub.plugins import wire
from appliance.hub.plugins.change_file import ChangeFile
from appliance.kernel.errors import Invalid
from tests.unit.hub.plugins.conftest import MARKS


def row(message_id, content, version=1):
    """A line with what the plugin itself returns for a message."""
    module = {}
    exec(MARKS, module)
    message = {"id": message_id, "content_raw": content, "version": version}
    return json.dumps({
        "message_id": message_id, "version": version,
        "content_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "enrichments": module["enrich"](message, {"gate": "/"}),
    })  # fmt: skip


def change(message_id, content, version=1):
    return msgspec.json.decode(row(message_id, content, version), type=wire.EnrichmentChange)


def apply(plugin_env, *changes, plugin="marks", dry_run=False):
    return plugin_env.ask("apply", wire.ApplyChanges(plugin, list(changes), dry_run))


@pytest.fixture
def posted(plugin_env):
    """Messages that the plugin has not seen: it begins at the end of the log."""
    texts = {plugin_env.post(text): text for text in ("a !one", "!two !three", "none", "é !four")}
    plugin_env.marks()
    return texts


def test_result_is_the_one_of_the_plugin_itself(plugin_env, posted):
    changes = [change(*item) for item in posted.items()]
    assert apply(plugin_env, *changes, dry_run=True) == wire.ChangesApplied(3, 1, 0)
    assert plugin_env.published() == []
    assert apply(plugin_env, *changes) == wire.ChangesApplied(3, 1, 0)
    published = plugin_env.published()
    assert [plugin_env.listed(message) for message in posted] == [
        ["!one"], ["!two", "!three"], [], ["!four"],
    ]  # fmt: skip
    assert {event["principal"] for event in published} == {"plugin:marks"}
    plugin_env.ask("re_enrich", wire.ReEnrich(0))
    plugin_env.rounds()
    assert plugin_env.published() == published
    assert apply(plugin_env, *changes) == wire.ChangesApplied(0, 4, 0)
    assert apply(plugin_env, *changes, dry_run=True) == wire.ChangesApplied(0, 4, 0)


def test_results_for_messages_that_changed_are_dropped(plugin_env, posted):
    edited, deleted, moved, same = posted
    changes = [change(*item) for item in posted.items()]
    plugin_env.edit(edited, "!newer")
    plugin_env.delete(deleted)
    plugin_env.move(moved, plugin_env.topic("elsewhere"))
    plugin_env.rounds()
    before = plugin_env.words(edited)
    unknown = change("msg_unknown", "!word")
    other_text = change(same, "!other")
    assert apply(plugin_env, *changes, unknown, other_text) == wire.ChangesApplied(1, 0, 5)
    assert plugin_env.words(edited) == before
    assert plugin_env.words(deleted) == []


def test_later_result_replaces_the_former(plugin_env, posted):
    message, text = next(iter(posted.items()))
    apply(plugin_env, change(message, text))
    emptied = msgspec.structs.replace(change(message, text), enrichments=[])
    assert apply(plugin_env, emptied) == wire.ChangesApplied(1, 0, 0)
    assert plugin_env.listed(message) == []


def test_result_that_a_plugin_may_not_return_is_refused(plugin_env, posted):
    message, text = next(iter(posted.items()))
    good = change(message, text)
    for finding in (
        wire.EnrichmentFinding("k", wire.TextSpan(0, 1000)),
        wire.EnrichmentFinding("k", wire.TextSpan(1, 1)),
        wire.EnrichmentFinding("k", wire.TextSpan(0, 1), {"url": "javascript:x"}),
        wire.EnrichmentFinding("k", wire.TextSpan(0, 1), {"x": "y" * 20_000}),
    ):
        done = apply(plugin_env, msgspec.structs.replace(good, enrichments=[finding]), good)
        assert [refused.message_id for refused in done.refused] == [message]
        assert done.stored + done.same == 1
    many = [wire.EnrichmentFinding("k", wire.TextSpan(0, 1))] * 101
    done = apply(plugin_env, msgspec.structs.replace(good, enrichments=many))
    assert len(done.refused) == 1


@pytest.mark.parametrize("name", ["unknown", "urls"])
def test_only_linkifiers_of_the_settings_have_results(plugin_env, posted, name):
    message, text = next(iter(posted.items()))
    assert isinstance(apply(plugin_env, change(message, text), plugin=name), wire.NoSuchPlugin)


# -- the file ----------------------------------------------------------------------------------


def write(folder, rows, **header):
    header = {"schema": "enrichment-changes-1", "plugin": "marks", "plugin_version": "1",
              "epoch": "e", "as_of_event_id": 7, **header}  # fmt: skip
    data = "".join(f"{line}\n" for line in (json.dumps(header), *rows)).encode()
    (folder / "marks.jsonl").write_bytes(data)
    fields = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": len(rows)}
    (folder / "marks.manifest.json").write_text(json.dumps(fields))
    return folder / "marks.jsonl"


def test_batches_fit_into_requests(tmp_path):
    rows = [row(f"msg_{number:04d}", f"!word{number}") for number in range(250)]
    rows += [row(f"msg_{number:04d}", "!" + "x" * 100_000) for number in range(250, 260)]
    file = ChangeFile(write(tmp_path, rows))
    batches = list(file.batches())
    ids = [each.message_id for batch in batches for each in batch]
    assert ids == [f"msg_{number:04d}" for number in range(260)]
    assert max(map(len, batches)) == wire.CHANGES_MAX
    assert max(len(msgspec.json.encode(batch)) for batch in batches) < 512 * 1024


def damaged(change):
    def damage(file):
        file.write_bytes(change(file.read_bytes()))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        damaged(lambda data: data[:-5]),
        damaged(lambda data: data.replace(b"!one", b"!two")),
        lambda file: file.unlink(),
        lambda file: file.with_name("marks.manifest.json").unlink(),
        lambda file: file.with_name("marks.manifest.json").write_text("{"),
        lambda file: write(file.parent, [], schema="other-1"),
        lambda file: write(file.parent, [], plugin=""),
    ],
)
def test_damaged_file_is_refused_before_anything_is_applied(tmp_path, damage):
    file = write(tmp_path, [row("msg_1", "!one")])
    damage(file)
    with pytest.raises(Invalid) as raised:
        ChangeFile(file)
    assert "plugins.md" in raised.value.hint


def test_malformed_row_is_an_error_of_the_file(tmp_path):
    with pytest.raises(Invalid, match="malformed"):
        list(ChangeFile(write(tmp_path, ["{}"])).batches())
