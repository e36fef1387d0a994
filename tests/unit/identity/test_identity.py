"""The member key: surroundings, machines, files, rotation."""

import io
import json
import stat

import pytest
from nacl.signing import VerifyKey

from appliance.identity import files, host, keys, wire
from appliance.identity.mode import Chosen, choose, in_ci
from appliance.identity.service import Identity
from appliance.identity.settings import IdentitySettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from tests.support.clock import FakeClock

DAY = 86_400.0


class Machine:
    """A machine's files under a folder: an id, cards, the marks of a container."""

    def __init__(self, root):
        self.root = root
        root.mkdir()

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        return self

    def id(self, digit):
        return self.put("etc/machine-id", digit * 32)

    def card(self, name, address):
        return self.put(f"sys/class/net/{name}/address", address)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "root")


@pytest.fixture
def other(tmp_path):
    return Machine(tmp_path / "other").id("b").card("eth0", "52:54:00:00:00:02")


class Place:
    """One workspace, started again and again."""

    def __init__(self, tmp_path):
        self.datadir = DataDir(tmp_path / "ws")
        self.datadir.dir.mkdir(parents=True)
        self.clock = FakeClock()
        self.lines = io.BytesIO()

    def load(self, root, environment=None, known_to_others=True, **settings):
        log = Log(self.lines, clock=self.clock)
        return Identity.load(
            self.datadir, IdentitySettings(**settings), self.clock, log, environment or {},
            known_to_others=known_to_others, root=root.root,
        )  # fmt: skip

    @property
    def said(self):
        return [json.loads(line)["msg"] for line in self.lines.getvalue().splitlines()]

    def file(self, name):
        return self.datadir.dir / "identity" / name


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def refuse(_old, _new):
    raise AssertionError("no broker may be told")


# -- which mode ----------------------------------------------------------------------------

CI_TOLD = "persistent_keypair_in_ci_environment"
RUNPOD_TOLD = "runpod_persistent_default_assumed"


@pytest.mark.parametrize(
    ("wanted", "environment", "mode", "told"),
    [
        ("auto", {}, "persistent", ""),
        ("auto", {"CI": "true"}, "ephemeral", ""),
        ("auto", {"CI": "1"}, "ephemeral", ""),
        ("auto", {"CI": "false"}, "persistent", ""),
        ("auto", {"CI": ""}, "persistent", ""),
        ("auto", {"GITHUB_ACTIONS": "true"}, "ephemeral", ""),
        ("auto", {"GITLAB_CI": "true"}, "ephemeral", ""),
        ("auto", {"BUILDKITE": "true"}, "ephemeral", ""),
        ("auto", {"CIRCLECI": "true"}, "ephemeral", ""),
        ("auto", {"JENKINS_URL": "http://jenkins"}, "ephemeral", ""),
        ("auto", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "ephemeral", ""),
        ("auto", {"RUNPOD_POD_ID": "x"}, "persistent", RUNPOD_TOLD),
        ("auto", {"RUNPOD_POD_ID": "x", "CI": "true"}, "ephemeral", ""),
        ("persistent", {}, "persistent", ""),
        ("persistent", {"CI": "true"}, "persistent", CI_TOLD),
        ("persistent", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "persistent", CI_TOLD),
        ("ephemeral", {}, "ephemeral", ""),
        ("ephemeral", {"CI": "true"}, "ephemeral", ""),
    ],
)
def test_the_mode_follows_from_settings_and_surroundings(wanted, environment, mode, told):
    assert choose(wanted, environment) == Chosen(mode, told, told == CI_TOLD)


def test_a_pod_is_short_lived_but_no_ci():
    assert not in_ci({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert in_ci({"BUILDKITE": "true"})


def test_an_ephemeral_member_is_never_on_the_disk(place, machine):
    first = place.load(machine, mode="ephemeral")
    assert not place.file("").exists()
    assert place.load(machine, mode="ephemeral").public_hex != first.public_hex
    with pytest.raises(wire.OnlyPersistent):
        first.rotate(refuse)
    assert not place.file("").exists()


def test_a_persistent_key_in_ci_is_warned_about(place, machine):
    place.load(machine, {"CI": "true"}, mode="persistent")
    assert CI_TOLD in place.said


# -- the machine ---------------------------------------------------------------------------


def test_files_are_the_owners_alone_and_the_key_stays(place, machine):
    first = place.load(machine.id("a"))
    assert stat.S_IMODE(place.file("").stat().st_mode) == 0o700
    for name in ("keypair.json", "host_fingerprint.json"):
        assert stat.S_IMODE(place.file(name).stat().st_mode) == 0o600
    again = place.load(machine)
    assert again.public_hex == first.public_hex
    VerifyKey(bytes.fromhex(first.public_hex)).verify(b"text", again.sign(b"text"))
    assert (
        machine.root.joinpath("etc/machine-id").read_text().strip()
        not in place.file("host_fingerprint.json").read_text()
    )


def test_a_copy_on_another_machine_is_refused_and_both_ways_out_work(place, machine, other):
    first = place.load(machine.id("a"))
    with pytest.raises(wire.HostChanged):
        place.load(other)
    assert place.load(machine).public_hex == first.public_hex
    here = host.measure(None, {}, other.root)
    files.Files(place.datadir).write(files.HOST, here)  # what accept-host does
    assert place.load(other).public_hex == first.public_hex
    with pytest.raises(wire.HostChanged):
        place.load(machine)
    files.remint(place.datadir, IdentitySettings(), place.clock)
    files.Files(place.datadir).write(files.HOST, host.measure(None, {}, machine.root))
    assert place.load(machine).public_hex != first.public_hex


@pytest.mark.parametrize(
    ("policy", "known", "refused", "warned"),
    [
        ("refuse", True, True, False),
        ("refuse", False, False, True),
        ("warn", True, False, True),
        ("allow", True, False, False),
    ],
)
def test_what_a_copy_means_is_the_policys(place, machine, other, policy, known, refused, warned):
    place.load(machine.id("a"))
    if refused:
        with pytest.raises(wire.HostChanged):
            place.load(other, known_to_others=known, clone_policy=policy)
    else:
        shown = place.load(other, known_to_others=known, clone_policy=policy).shown()
        assert shown.host == "other"
    assert ("the member key was made on another machine" in place.said) == warned


def test_another_card_is_no_other_machine_while_the_id_stays(place, machine):
    """A random address at each start must not keep the appliance from starting."""
    place.load(machine.id("a").card("wlan0", "52:54:00:00:00:01"))
    for end in ("02", "03"):
        machine.card("wlan0", f"52:54:00:00:00:{end}")
        assert place.load(machine).verdict == "moved_card"
    assert place.load(machine).verdict == "same"


def test_without_an_id_the_card_decides(place, machine, other):
    machine.card("eth0", "52:54:00:00:00:01")
    place.load(machine)
    assert host.HOST_ID_MISSING in place.said
    (other.root / "etc/machine-id").unlink()
    with pytest.raises(wire.HostChanged):
        place.load(other)


@pytest.mark.parametrize(
    "mark",
    [
        (".dockerenv", ""),
        ("run/.containerenv", ""),
        ("proc/1/cgroup", "0::/system.slice/docker-3f2a.scope"),
    ],
)
def test_a_containers_card_means_nothing(place, machine, mark):
    machine.put(*mark).card("eth0", "02:42:ac:11:00:02")
    place.load(machine)
    assert host.UNAVAILABLE in place.said
    machine.card("eth0", "02:42:ac:11:00:09")
    assert place.load(machine).verdict == "unknown"


@pytest.mark.parametrize(
    "name",
    [
        *("lo", "docker0", "br-1a2b", "veth12", "tap0", "tun1", "tailscale0", "wg0"),
        *("utun3", "ppp0", "vboxnet0", "vmnet8", "awdl0", "llw0"),
    ],
)
def test_virtual_cards_are_passed_over(machine, name):
    machine.card(name, "52:54:00:00:00:01")
    assert host.stable_card(machine.root) is None
    machine.card("zz0", "52:54:00:00:00:02")
    assert host.stable_card(machine.root) == "52:54:00:00:00:02"


def test_a_given_id_wins(machine, other):
    ours = host.measure("given", {}, machine.id("a").root)
    assert host.compare(ours, host.measure("given", {}, other.root)) == "moved_card"


def test_an_id_that_was_never_drawn_is_none(machine):
    machine.put("etc/machine-id", "uninitialized")
    assert host.host_id(machine.root) is None
    machine.put("var/lib/dbus/machine-id", "c" * 32)
    assert host.host_id(machine.root) == "c" * 32


@pytest.mark.parametrize("broken", ["{}", "nonsense", '{"schema_version": 1'])
def test_a_damaged_key_stops_the_start_and_stays_where_it_is(place, machine, broken):
    place.load(machine)
    place.file("keypair.json").write_text(broken)
    with pytest.raises(wire.KeysDamaged):
        place.load(machine)
    assert place.file("keypair.json").read_text() == broken


def test_halves_that_do_not_belong_together_are_no_key(place, machine):
    place.load(machine)
    stored = json.loads(place.file("keypair.json").read_text())
    stored["ed25519_pubkey"] = keys.make("now").ed25519_pubkey
    place.file("keypair.json").write_text(json.dumps(stored))
    with pytest.raises(wire.KeysDamaged):
        place.load(machine)


# -- rotation ------------------------------------------------------------------------------


def agree(_old, _new):
    return {"work": "taken"}


def test_a_rotation_archives_what_decrypts_and_keeps_no_old_signing_key(place, machine):
    identity = place.load(machine)
    old = json.loads(place.file("keypair.json").read_text())
    rotated = identity.rotate(agree)
    assert rotated.former_pubkey == old["ed25519_pubkey"]
    assert identity.public_hex == rotated.pubkey == place.load(machine).public_hex
    text = "".join(path.read_text() for path in place.file("").iterdir())
    assert old["ed25519_seed"] not in text
    archive = json.loads(place.file("keypair-archive.json").read_text())
    assert set(archive["keys"][0]) == {
        "ed25519_pubkey", "x25519_pubkey", "x25519_privkey", "key_id", "created_at",
        "rotated_out_at", "expires_at",
    }  # fmt: skip
    assert (archive["schema_version"], archive["max_archived_keys"]) == (1, 8)
    assert archive["keys"][0]["x25519_privkey"] == old["x25519_privkey"]


def test_an_archived_key_goes_after_its_grace_time(place, machine):
    identity = place.load(machine)
    identity.rotate(agree)
    place.clock.pass_seconds(7 * DAY - 1)
    assert identity.tidy_archive() == 0
    place.clock.pass_seconds(2)
    assert identity.tidy_archive() == 1
    assert identity.shown().archived == []


def test_a_full_archive_gives_up_its_oldest(place, machine):
    identity = place.load(machine, archive_max=2)
    first = identity.public_hex
    for _ in range(3):
        place.clock.pass_seconds(1)
        identity.rotate(agree)
    kept = [key.pubkey for key in identity.shown().archived]
    assert len(kept) == 2
    assert first not in kept
    assert "archived keys gave way before their time" in place.said


def test_a_rotation_that_everybody_refused_leaves_nothing(place, machine):
    identity = place.load(machine)
    before = identity.public_hex
    with pytest.raises(wire.RotationUnfinished):
        identity.rotate(lambda _old, _new: {"work": "refused"})
    assert identity.public_hex == before
    assert not identity.shown().rotation_unfinished
    assert not place.file("keypair-next.json").exists()
    assert not place.file("keypair-archive.json").exists()


@pytest.mark.parametrize("first", ["taken", "unknown"])
def test_a_rotation_that_some_may_have_taken_goes_on_with_the_same_key(place, machine, first):
    """An answer that was lost must not lose the key that the broker knows now."""
    identity = place.load(machine)
    before, offered = identity.public_hex, []

    def half(_old, new):
        offered.append(new.ed25519_pubkey)
        return {"work": first, "home": "unknown"}

    with pytest.raises(wire.RotationUnfinished) as refusal:
        identity.rotate(half)
    assert "home" in refusal.value.details["missing"]
    assert "home" in refusal.value.message, "a person reads the sentence, not the details"
    for one in (identity, place.load(machine)):  # also after a restart
        assert (one.public_hex, one.shown().rotation_unfinished) == (before, True)
        assert one.in_mesh("home").public_hex == before
        assert one.in_mesh("work").public_hex == (offered[0] if first == "taken" else before)
        assert all(one.is_own(key) for key in (before, offered[0]))
        work = one.in_mesh("work")
        VerifyKey(bytes.fromhex(work.public_hex)).verify(b"text", work.sign(b"text"))
    assert one.rotate(agree).pubkey == offered[0]
    assert not one.shown().rotation_unfinished
    assert one.is_own(before)


def test_one_rotation_at_a_time(place, machine):
    identity = place.load(machine)

    def again(_old, _new):
        with pytest.raises(wire.RotationRuns):
            identity.rotate(agree)
        return {}

    identity.rotate(again)


def test_a_crash_between_archive_and_key_archives_once(place, machine):
    identity = place.load(machine)
    kept = place.file("keypair.json").read_bytes()
    new = keys.make("2026")
    place.file("keypair-next.json").write_text(keys.text_of(keys.Rotation(new, ("work",))))
    place.load(machine).rotate(agree)
    # As if the process had ended before the key was replaced, and after the archive was.
    place.file("keypair.json").write_bytes(kept)
    place.file("keypair-next.json").write_text(keys.text_of(keys.Rotation(new, ("work",))))
    again = place.load(machine)
    again.rotate(agree)
    assert again.public_hex == new.ed25519_pubkey
    assert [key.pubkey for key in again.shown().archived] == [identity.public_hex]


def one_key():
    return keys.archived(keys.make("2026"), "2026", "2999")


def spoil(archive, what):
    entry = archive["keys"][0]
    if what == "duplicate":
        archive["keys"].append(entry)
    elif what == "pair":
        entry["x25519_pubkey"] = "0" * 64
    elif what == "version":
        archive["schema_version"] = 2
    else:
        entry["more"] = 1
    return archive


@pytest.mark.parametrize("what", ["duplicate", "pair", "version", "unknown field"])
def test_a_malformed_archive_is_put_aside(place, machine, what):
    place.load(machine)
    archive = json.loads(keys.text_of(keys.Archive((one_key(),))))
    place.file("keypair-archive.json").write_text(json.dumps(spoil(archive, what)))
    identity = place.load(machine)
    assert (keys.DUPLICATE if what == "duplicate" else keys.MALFORMED) in place.said
    assert list(place.file("").glob("keypair-archive.json.malformed-*"))
    assert identity.shown().archived == []


def test_wrong_modes_are_told_and_nothing_more(place, machine):
    place.load(machine)
    place.file("keypair.json").chmod(0o644)
    place.load(machine)
    assert "a file of the identity can be read by others" in place.said
    assert files.Files(place.datadir).open_to_others() == ["keypair.json"]


def test_no_repr_shows_a_secret():
    made = keys.make("now")
    assert made.ed25519_seed not in repr(made)
    assert made.x25519_privkey not in repr(keys.archived(made, "a", "b"))
