"""A linkifier over the whole history: what it finds, its errors, and a file that the hub takes."""

import json
from pathlib import Path

import pytest

from appliance.hub.plugins.builtin import references
from appliance.hub.plugins.change_file import ChangeFile
from spark.errors import Usage
from spark.jobs.ingest import job as ingest
from spark.jobs.reenrich import enricher, job
from tests.spark.log import Log

BUILTIN = Path(references.__file__)
FAULTY = """
import time
VERSION = "7"
def enrich(message, config):
    text = message["content_raw"]
    if text == "raise":
        raise ValueError(text)
    if text == "list":
        return {}
    if text == "span":
        return [{"kind": "k", "span": {"start": 0, "end": 99}}]
    if text == "many":
        return [{"kind": "k", "span": {"start": 0, "end": 1}}] * 101
    if text == "large":
        return [{"kind": "k", "span": {"start": 0, "end": 1}, "data": {"x": "y" * 300_000}}]
    if text == "nan":
        return [{"kind": "k", "span": {"start": 0, "end": 1}, "data": {"x": float("nan")}}]
    if text == "hang":
        while True:
            time.sleep(0.01)
    return [{"kind": "k", "span": {"start": 0, "end": 1}, "data": config}]
"""


@pytest.fixture
def history(ask, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    kept = {
        log.say(topic, "ann", text): text
        for text in ("see a/app.py:12-20", "é 🎉 libs/in.md!", "b.rs", "none")
    }
    edited, deleted = log.say(topic, "bob", "old.py"), log.say(topic, "bob", "gone.py")
    emptied = log.say(topic, "bob", "x.py")
    log.enrich(emptied, ["file_path"], plugin="references")
    log.wait(days=1).edit(edited, "new.py:7")
    log.edit(emptied, "nothing")
    log.delete(deleted)
    kept |= {edited: "new.py:7", emptied: "nothing"}
    log.export(tmp_path / "in")
    ingest.run(ask())
    return log, kept, emptied


def test_findings_are_those_of_the_plugin_and_the_hub_reads_the_file(ask, tmp_path, history):
    log, kept, emptied = history
    options = {"plugin": str(BUILTIN), "name": None, "config": '{"url":"https://git/{path}"}'}
    report = job.run(ask(source=tmp_path / "out", options=options))
    file = ChangeFile(report.path)
    assert (file.header.plugin, file.header.plugin_version) == ("references", references.VERSION)
    assert (file.header.epoch, file.header.as_of_event_id) == (log.epoch, log.last)
    rows = {each.message_id: each for batch in file.batches() for each in batch}
    expected = {message: references.enrich({"content_raw": text}, json.loads(options["config"]))
                for message, text in kept.items()}  # fmt: skip
    lines = [json.loads(line) for line in report.path.read_text().splitlines()[1:]]
    made = {line["message_id"]: line["enrichments"] for line in lines}
    assert made == {message: findings for message, findings in expected.items()
                    if findings or message == emptied}  # fmt: skip
    assert list(made) == sorted(made)
    versions = {row["id"]: row["version"] for row in log.tables["messages"].values()}
    assert {name: row.version for name, row in rows.items()} == {
        name: versions[name] for name in rows
    }
    assert report.counts["errors"] == 0
    before = report.path.read_bytes()
    assert job.run(ask(source=tmp_path / "out", options=options)).path.read_bytes() == before


def test_errors_of_the_plugin_cost_one_message_each(monkeypatch):
    monkeypatch.setattr(enricher, "FILENAME", "<plugin>")
    plugin = enricher.PluginText("faulty", FAULTY, '{"a":1}', 100, 256 * 1024, 0.2)
    function, version = enricher.load(plugin)
    assert version == "7"

    def of(text):
        message = {"id": "msg_1", "version": 1, "content_raw": text}
        return enricher.enrich(function, plugin, message)

    errors = {
        text: of(text).error for text in ("raise", "list", "span", "many", "large", "nan", "hang")
    }
    assert errors == {
        "raise": "ValueError", "list": "NotAList", "span": "BadFinding", "many": "TooManyItems",
        "large": "TooLarge", "nan": "ValueError", "hang": "TookTooLong",
    }  # fmt: skip
    assert of("raise").error_line == 7
    assert json.loads(of("good").line)["enrichments"][0]["data"] == {"a": 1}


@pytest.mark.parametrize(
    ("source", "more"),
    [
        ("def enrich(", {}), ("x = 1", {}), ("import nothing_like_this", {}),
        ("def enrich(m, c): return []", {"config": "[]"}),
        ("def enrich(m, c): return []", {"config": "{"}),
        ("def enrich(m, c): return []", {"name": "A name"}),
        (None, {}),
    ],
)  # fmt: skip
def test_plugin_or_config_that_is_wrong_is_refused_first(ask, tmp_path, source, more):
    file = tmp_path / "plugin.py"
    if source is not None:
        file.write_text(source)
    with pytest.raises(Usage):
        job.run(ask(options={"plugin": str(file), **more}))
