"""Every situation of `docs/how-to/when-it-breaks.md`: caused for real in a real workspace,
treated with the commands of the page, and healed."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.kernel import meta
from appliance.kernel.steady_clock import CLOCK_KEY, ClockNote
from tests.doctor import breakages as by
from tests.doctor.breakages import UsedWorkspace
from tests.doctor.night import Stranger, blocks_of, sections
from tests.doctor.repairs import read_elsewhere
from tests.doctor.test_breakages import state_of
from tests.support.smalldisk import SmallDisk, small_disk
from tests.support.until import until

pytestmark = pytest.mark.slow

MESSAGES = "SELECT id, content_raw FROM messages ORDER BY id"
Play = Callable[..., Stranger]


@pytest.fixture
def play(
    copy_used: Callable[[Path], UsedWorkspace], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Play]:
    """`play(heading)`: a stranger in front of a used workspace, who runs every block of the
    section."""
    strangers = []

    def begin(heading: str, where: Path = tmp_path / "here", **settings: str) -> Stranger:
        copy_used(where / "workspace")
        strangers.append(Stranger(heading, where / "workspace", tmp_path / "bin", **settings))
        return strangers[-1]

    try:
        yield begin
        assert [each.waiting for each in strangers] == [[]] * len(strangers), "blocks were not run"
    finally:
        for each in strangers:
            each.end()


def rows(stranger: Stranger, sql: str = MESSAGES, store: str = "hub") -> list[tuple[object, ...]]:
    return UsedWorkspace(stranger.workspace).execute(sql, store=store)


def send(stranger: Stranger, number: int = 1, content: str = "in the night") -> list[int]:
    """Sends messages one by one: the status of each reply."""
    client = stranger.client()
    [(topic,)] = rows(stranger, "SELECT id FROM topics ORDER BY id LIMIT 1")
    message = {"topic_id": topic, "sender": "tester", "content_raw": content}
    return [client.post("/api/v1/messages", message).status for _ in range(number)]


def paused_stores(stranger: Stranger) -> list[str]:
    """The stores that refuse writes. The appliance is ready meanwhile, because reads work."""
    facts = stranger.client().get("/-/ready").body["facts"]
    return [name for name in facts if name.endswith(".writing_paused") and facts[name]]


def is_indexed(stranger: Stranger) -> bool:
    [(done,)] = rows(stranger, "SELECT indexed >= (SELECT max(rowid) FROM messages) FROM x_fts")
    return bool(done)


def test_every_situation_has_a_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    headings = [heading for heading in sections() if heading]
    assert len(headings) >= 10
    assert [each for each in headings if f'play("{each}"' not in here] == []
    assert [each for each in headings if not blocks_of(each)] == []


def test_first_commands_work_where_nothing_is_wrong(play: Play) -> None:
    stranger = play("")
    stranger.up()
    assert "Summary: 0 warnings, 0 errors" in stranger.run()


def test_wrong_setting_is_named_at_start(play: Play) -> None:
    stranger = play("It does not start")
    good = stranger.data.settings_file.read_text()
    stranger.data.settings_file.write_text("[hub]\nnonsense = 1\n")
    stranger.run(code=1)
    stranger.data.settings_file.write_text(good)
    stranger.run()
    assert send(stranger) == [201]


def test_hung_appliance_is_restarted(play: Play) -> None:
    stranger = play("It does not respond")
    stranger.up()
    assert send(stranger) == [201]
    before, pid = rows(stranger), stranger.pid
    stranger.hang()
    assert "agentlipd restart" in stranger.run(code=2)
    stranger.run()
    assert stranger.pid != pid
    assert rows(stranger) == before
    assert send(stranger) == [201]


@pytest.mark.root
def test_full_disk_is_named_until_freed(play: Play, tmp_path: Path) -> None:
    with small_disk(tmp_path, "tmpfs", 256) as disk:
        stranger = play("The disk is full", disk.root)
        try:
            disk.fill()
            assert "the disk is full" in stranger.sh("agentlipd up", 1)
            disk.clear()
            stranger.up()
            disk.fill()
            until(
                lambda: send(stranger) == [503] and paused_stores(stranger), what="writing pauses"
            )
            before = rows(stranger)
            stranger.run()
            assert rows(stranger) == before
            disk.clear()
            until(lambda: send(stranger) == [201], what="writing resumes")
            until(lambda: paused_stores(stranger) == [], what="all stores resume")
            assert stranger.run() == ""
        finally:
            stranger.end()


@contextmanager
def stopped_by_the_kernel(disk: SmallDisk) -> Iterator[None]:
    """As after an error of the disk; checked and mounted again at the end."""
    folder = str(disk.root)
    subprocess.run(["mount", "-o", "remount,abort", folder], check=True)
    yield
    # A process of the appliance that ends just now may still have a file open.
    until(lambda: subprocess.run(["umount", folder], check=False).returncode == 0)
    image = str(disk.root.with_name("disk.img"))
    checked = subprocess.run(["e2fsck", "-p", image], capture_output=True, check=False)
    assert checked.returncode in (0, 1), checked
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)


@pytest.mark.root
def test_read_only_disk(play: Play, tmp_path: Path) -> None:
    with small_disk(tmp_path, "ext4", 256) as disk:
        stranger = play("The disk is read-only", disk.root)
        try:
            stranger.up()
            assert send(stranger) == [201]
            before = rows(stranger)
            subprocess.run(["sync", "-f", str(disk.root)], check=True)
            with stopped_by_the_kernel(disk):
                stranger.run()
                assert "Nothing to repair" in stranger.sh("agentlip doctor repair --yes", 2)
                stranger.run()
            stranger.run()
            assert rows(stranger) == before
            assert send(stranger) == [201]
        finally:
            stranger.end()


def test_files_open_to_others(play: Play) -> None:
    stranger = play("Files can be read by other users")
    stranger.up()
    # Not the token: the appliance itself protects it again within a second.
    spared = ["!", "-name", "token", "!", "-name", "server.json"]
    chmod = ["-exec", "chmod", "go+rX", "{}", "+"]
    subprocess.run(["find", str(stranger.data.dir), *spared, *chmod], check=True)
    stranger.run()
    assert stranger.run().endswith("the checks now find no problems.\n")
    assert send(stranger) == [201]
    open_files = [each for each in stranger.data.dir.rglob("*.sqlite3") if each.stat().st_mode & 63]
    assert open_files == []


def test_lost_token_is_replaced(play: Play) -> None:
    stranger = play("The token is lost")
    stranger.up()
    old = stranger.client().token
    stranger.data.token_file.unlink()
    stranger.run(code=2)
    stranger.sh("agentlipd down")
    assert "--accept-loss token" in stranger.sh("agentlipd up", 1)
    stranger.run()
    assert send(stranger) == [201]
    assert old != stranger.data.read_token()
    assert stranger.client(old).post("/api/v1/channels", {"name": "night"}).status == 401
    assert stranger.sh("agentlip doctor --quiet") == ""


def test_killed_process_loses_no_row(play: Play) -> None:
    stranger = play("The process was killed")
    stranger.up()
    assert send(stranger) == [201]
    before = rows(stranger)
    stranger.end()
    assert "Summary: 0 warnings, 0 errors" in stranger.run()
    assert rows(stranger) == before
    assert send(stranger) == [201]


def test_damaged_stores_are_recovered(play: Play) -> None:
    stranger = play("A store is damaged")
    used = UsedWorkspace(stranger.workspace)
    before = state_of(used)
    by.broken_page(used)
    assert "the database is damaged" in stranger.sh("agentlipd up", 1)
    checked = stranger.run(code=2)
    assert "-> agentlip recover hub --yes" in checked
    assert "Everything is saved." in stranger.run()
    assert "Agentlip is running" in stranger.run()
    assert stranger.sh("agentlip doctor --all --quiet") == ""
    stranger.sh("agentlipd down")
    after = state_of(used)
    changed = {name for name in before if before[name] != after.get(name)}
    assert {name for name in changed if name.startswith("hub.")} <= {"hub.meta"}

    by.no_header("broker")(used)
    stranger.up()
    assert "-> agentlipd down; agentlip recover broker --yes" in stranger.sh(
        "agentlip doctor --quiet", 2
    )
    stranger.run()
    assert stranger.sh("agentlip doctor --all --quiet") == ""
    counted = "SELECT count(*) FROM mesh"
    assert rows(stranger, counted, "broker") == [(1,)]


def test_copied_workspace_gets_new_identity(play: Play, tmp_path: Path) -> None:
    original = play("The workspace was copied")
    original.up()
    assert send(original) == [201]
    until(lambda: is_indexed(original), what="nothing is written while files are copied")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(original.workspace), str(copy)], check=True)
    stranger = original.in_folder(copy)
    try:
        stranger.run()
        stranger.run()
        check = "agentlip bus claims &>/dev/null; agentlip doctor --quiet"
        assert [each.sh(check) for each in (original, stranger)] == ["", ""]
        shown = [each.sh("agentlip identity show --json") for each in (original, stranger)]
        assert shown[0] != shown[1]
        before = rows(original)
        assert send(stranger) == [201]
        assert rows(original) == before
        assert len(rows(stranger)) == len(before) + 1
    finally:
        stranger.end()


def test_reader_keeps_the_write_ahead_log(play: Play) -> None:
    stranger = play("A write-ahead log grows", AGENTLIP_DOCTOR__WAL_WARNING_BYTES="1000000")
    stranger.up()
    with read_elsewhere(stranger.data.database("hub")) as reader:
        assert set(send(stranger, 60, "x" * 20_000)) == {201}
        assert str(reader) in stranger.run()
    until(lambda: is_indexed(stranger), what="the hub has written the index of the messages")
    assert "hub: 0 bytes are left" in stranger.run()
    assert stranger.sh("agentlip doctor --quiet") == ""
    assert send(stranger) == [201]


def test_failing_plugin_is_named_and_switched_off(play: Play) -> None:
    stranger = play("A plugin fails")
    module = stranger.workspace / "plugins/night.py"
    module.parent.mkdir(exist_ok=True)
    module.write_text("def enrich(message, config):\n    raise ValueError\n")
    with stranger.data.settings_file.open("a") as file:
        file.write(
            '\n[[plugins.use]]\nname = "night"\ntype = "linkifier"\nmodule = "plugins/night.py"\n'
        )
    stranger.up()
    assert set(send(stranger, 8)) == {201}
    until(lambda: "paused" in stranger.sh("agentlip plugin list"), what="the plugin pauses")
    stranger.run()
    module.write_text("def enrich(message, config):\n    return []\n")
    stranger.run()

    def caught_up() -> bool:
        [plugin] = [
            each
            for each in stranger.client().get("/api/v1/plugins").body["plugins"]
            if each["name"] == "night"
        ]
        return bool(plugin["lag"] == 0)

    until(caught_up, what="the plugin has caught up")


def test_damaged_export_is_exported_again(play: Play) -> None:
    stranger = play("An export is damaged")
    stranger.up()
    by.short_segment(UsedWorkspace(stranger.workspace))
    stranger.run(code=11)
    stranger.run()
    by.segment(stranger.data)
    assert stranger.sh("agentlip doctor --all --quiet") == ""


@pytest.mark.root
def test_clock_that_was_set(play: Play) -> None:
    """Linux gives the commands another uptime, as a clock that was set back by two hours has."""
    stranger = play("The clock has jumped")
    noted = f"SELECT value FROM meta WHERE key = '{CLOCK_KEY}'"
    stranger.up()
    until(lambda: rows(stranger, noted, "broker"), what="the clock was noted")
    stranger.sh("agentlipd down")
    before = rows(stranger, noted, "broker")
    right = stranger.shell
    stranger.shell = ["unshare", "--time", "--boottime", "7200", *right]
    stranger.up()
    until(lambda: rows(stranger, noted, "broker") != before, 40, "the broker measures the clock")
    assert "set by -7200 s" in stranger.run()
    stranger.shell = right
    assert "set by +7200 s" in stranger.run()
    [(value,)] = rows(stranger, noted, "broker")
    note = meta.decode(str(value), ClockNote)
    assert note is not None
    assert abs(note.total_ms) < 2_000
