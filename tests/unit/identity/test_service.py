"""The member key: surroundings, machines, files, rotation."""

import io
import json
import stat

import pytest
from nacl.signing import VerifyKey

from appliance.identity import files, host, keys, wire
from appliance.identity.mode import KeyMode, choose
from appliance.identity.service import MemberIdentity
from appliance.identity.settings import IdentitySettings
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir
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


class Workspace:
    """One workspace, started again and again."""

    def __init__(self, tmp_path):
        self.datadir = DataDir(tmp_path / "ws")
        self.datadir.dir.mkdir(parents=True)
        self.clock = FakeClock()
        self.lines = io.BytesIO()

    def load(self, root, environment=None, is_known_elsewhere=True, **settings):
        log = Log(self.lines, clock=self.clock)
        return MemberIdentity(
            self.datadir, IdentitySettings(**settings), self.clock, log, environment or {},
            is_known_elsewhere=is_known_elsewhere, root=root.root,
        )  # fmt: skip

    @property
    def log_messages(self):
        return [json.loads(line)["msg"] for line in self.lines.getvalue().splitlines()]

    def file(self, name):
        return self.datadir.dir / "identity" / name


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


def refuse(_new):
    raise AssertionError("no broker may be told")


# -- which mode ----------------------------------------------------------------------------

CI_NOTICE = "persistent_keypair_in_ci_environment"
RUNPOD_NOTICE = "runpod_persistent_default_assumed"


@pytest.mark.parametrize(
    ("setting", "environment", "mode", "notice"),
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
        ("auto", {"RUNPOD_POD_ID": "x"}, "persistent", RUNPOD_NOTICE),
        ("auto", {"RUNPOD_POD_ID": "x", "CI": "true"}, "ephemeral", ""),
        ("persistent", {}, "persistent", ""),
        ("persistent", {"CI": "true"}, "persistent", CI_NOTICE),
        ("persistent", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "persistent", CI_NOTICE),
        ("ephemeral", {}, "ephemeral", ""),
        ("ephemeral", {"CI": "true"}, "ephemeral", ""),
    ],
)
def test_mode_depends_on_settings_and_environment(setting, environment, mode, notice):
    assert choose(setting, environment) == KeyMode(mode, notice, notice == CI_NOTICE)


def test_ephemeral_key_is_never_stored(workspace, machine):
    first = workspace.load(machine, mode="ephemeral")
    assert not workspace.file("").exists()
    assert workspace.load(machine, mode="ephemeral").view().pubkey != first.view().pubkey
    with pytest.raises(wire.OnlyPersistent):
        first.rotate(refuse)
    assert not workspace.file("").exists()


# -- the machine ---------------------------------------------------------------------------


def test_files_are_private_and_the_key_survives_a_restart(workspace, machine):
    first = workspace.load(machine.id("a"))
    assert stat.S_IMODE(workspace.file("").stat().st_mode) == 0o700
    for name in ("keypair.json", "host_fingerprint.json"):
        assert stat.S_IMODE(workspace.file(name).stat().st_mode) == 0o600
    reloaded = workspace.load(machine).in_mesh("work")
    assert reloaded.public_hex == first.view().pubkey
    VerifyKey(bytes.fromhex(first.view().pubkey)).verify(b"text", reloaded.sign(b"text"))
    assert (
        machine.root.joinpath("etc/machine-id").read_text().strip()
        not in workspace.file("host_fingerprint.json").read_text()
    )


def test_copy_on_another_machine_is_refused_until_resolved(workspace, machine, other):
    first = workspace.load(machine.id("a"))
    with pytest.raises(wire.HostChanged):
        workspace.load(other)
    assert workspace.load(machine).view().pubkey == first.view().pubkey
    here = host.measure({}, other.root)
    files.IdentityFiles(workspace.datadir).write(files.HOST, here)  # what accept-host does
    assert workspace.load(other).view().pubkey == first.view().pubkey
    with pytest.raises(wire.HostChanged):
        workspace.load(machine)
    files.remint(workspace.datadir, IdentitySettings(), workspace.clock)
    files.IdentityFiles(workspace.datadir).write(files.HOST, host.measure({}, machine.root))
    assert workspace.load(machine).view().pubkey != first.view().pubkey


@pytest.mark.parametrize(
    ("policy", "is_known_elsewhere", "refused", "warned"),
    [
        ("refuse", True, True, False),
        ("refuse", False, False, True),
        ("warn", True, False, True),
        ("allow", True, False, False),
    ],
)
def test_policy_decides_about_a_copy(
    workspace, machine, other, policy, is_known_elsewhere, refused, warned
):
    workspace.load(machine.id("a"))
    if refused:
        with pytest.raises(wire.HostChanged):
            workspace.load(other, is_known_elsewhere=is_known_elsewhere, clone_policy=policy)
    else:
        view = workspace.load(
            other, is_known_elsewhere=is_known_elsewhere, clone_policy=policy
        ).view()
        assert view.host == "other"
    assert ("the member key was made on another machine" in workspace.log_messages) == warned


def test_changed_network_card_is_accepted_with_the_same_machine_id(workspace, machine):
    """A random address at each start must not keep the appliance from starting."""
    workspace.load(machine.id("a").card("wlan0", "52:54:00:00:00:01"))
    for end in ("02", "03"):
        machine.card("wlan0", f"52:54:00:00:00:{end}")
        assert workspace.load(machine).view().host == "same"
    stored = json.loads(workspace.file("host_fingerprint.json").read_text())
    assert stored["fingerprint"] == host.measure({}, machine.root).fingerprint


@pytest.mark.parametrize(
    "container_file",
    [
        (".dockerenv", ""),
        ("run/.containerenv", ""),
        ("proc/1/cgroup", "0::/system.slice/docker-3f2a.scope"),
    ],
)
def test_network_card_is_ignored_in_containers(workspace, machine, container_file):
    machine.put(*container_file).card("eth0", "02:42:ac:11:00:02")
    workspace.load(machine)
    assert host.UNAVAILABLE in workspace.log_messages
    machine.card("eth0", "02:42:ac:11:00:09")
    assert workspace.load(machine).view().host == "unknown"


@pytest.mark.parametrize(
    "name",
    [
        *("lo", "docker0", "br-1a2b", "veth12", "tap0", "tun1", "tailscale0", "wg0"),
        *("utun3", "ppp0", "vboxnet0", "vmnet8", "awdl0", "llw0"),
    ],
)
def test_virtual_network_cards_are_ignored(machine, name):
    machine.card(name, "52:54:00:00:00:01")
    assert host.stable_card(machine.root) is None
    machine.card("zz0", "52:54:00:00:00:02")
    assert host.stable_card(machine.root) == "52:54:00:00:00:02"


@pytest.mark.parametrize("broken", ["{}", "nonsense", '{"schema_version": 1'])
def test_damaged_key_stops_the_start_and_is_kept(workspace, machine, broken):
    workspace.load(machine)
    workspace.file("keypair.json").write_text(broken)
    with pytest.raises(wire.KeysDamaged):
        workspace.load(machine)
    assert workspace.file("keypair.json").read_text() == broken


# -- rotation ------------------------------------------------------------------------------


def agree(_new):
    return {"work": "taken"}


def test_rotation_archives_only_the_decryption_key(workspace, machine):
    identity = workspace.load(machine)
    old = json.loads(workspace.file("keypair.json").read_text())
    rotated = identity.rotate(agree)
    assert rotated.former_pubkey == old["ed25519_pubkey"]
    assert identity.view().pubkey == rotated.pubkey == workspace.load(machine).view().pubkey
    text = "".join(path.read_text() for path in workspace.file("").iterdir())
    assert old["ed25519_seed"] not in text
    archive = json.loads(workspace.file("keypair-archive.json").read_text())
    assert set(archive["keys"][0]) == {
        "ed25519_pubkey", "x25519_pubkey", "x25519_privkey", "key_id", "created_at",
        "rotated_out_at", "expires_at",
    }  # fmt: skip
    assert (archive["schema_version"], archive["max_archived_keys"]) == (1, 8)
    assert archive["keys"][0]["x25519_privkey"] == old["x25519_privkey"]


def test_archived_key_is_removed_after_its_grace_period(workspace, machine):
    identity = workspace.load(machine)
    identity.rotate(agree)
    workspace.clock.pass_seconds(7 * DAY - 1)
    assert identity.prune_archive(workspace.clock.now_ms()) == 0
    workspace.clock.pass_seconds(2)
    assert identity.prune_archive(workspace.clock.now_ms()) == 1
    assert identity.view().archived == []


@pytest.mark.parametrize("first", ["taken", "unknown"])
def test_partial_rotation_continues_with_the_same_key(workspace, machine, first):
    """An answer that was lost must not lose the key that the broker knows now."""
    identity = workspace.load(machine)
    before, offered = identity.view().pubkey, []

    def half(new):
        offered.append(new.ed25519_pubkey)
        return {"work": first, "home": "unknown"}

    with pytest.raises(wire.RotationUnfinished) as refusal:
        identity.rotate(half)
    assert "home" in refusal.value.details["missing"]
    assert "home" in refusal.value.message, "a person reads the sentence, not the details"
    for identity_ in (identity, workspace.load(machine)):  # also after a restart
        assert (identity_.view().pubkey, identity_.view().rotation_unfinished) == (before, True)
        assert identity_.in_mesh("home").public_hex == before
        assert identity_.in_mesh("work").public_hex == (offered[0] if first == "taken" else before)
        assert all(identity_.is_own(key) for key in (before, offered[0]))
        work = identity_.in_mesh("work")
        VerifyKey(bytes.fromhex(work.public_hex)).verify(b"text", work.sign(b"text"))
    assert identity_.rotate(agree).pubkey == offered[0]
    assert not identity_.view().rotation_unfinished
    assert identity_.is_own(before)


def test_a_crash_between_archive_and_key_archives_once(workspace, machine):
    identity = workspace.load(machine)
    kept = workspace.file("keypair.json").read_bytes()
    new = keys.make("2026")
    workspace.file("keypair-next.json").write_text(keys.text_of(keys.KeyRotation(new, ("work",))))
    workspace.load(machine).rotate(agree)
    # As if the process had ended before the key was replaced, and after the archive was.
    workspace.file("keypair.json").write_bytes(kept)
    workspace.file("keypair-next.json").write_text(keys.text_of(keys.KeyRotation(new, ("work",))))
    reloaded = workspace.load(machine)
    reloaded.rotate(agree)
    assert reloaded.view().pubkey == new.ed25519_pubkey
    assert [key.pubkey for key in reloaded.view().archived] == [identity.view().pubkey]


KEY = keys.archived(keys.make("2026"), "2026", "2999")


@pytest.mark.parametrize(
    ("broken", "notice"),
    [
        ("nonsense", keys.MALFORMED),
        ('{"schema_version": 2, "keys": []}', keys.MALFORMED),
        (keys.text_of(keys.KeyArchive((KEY, KEY))), keys.DUPLICATE),
    ],
    ids=["text", "version", "duplicate"],
)
def test_a_damaged_archive_is_put_aside(workspace, machine, broken, notice):
    workspace.load(machine)
    workspace.file("keypair-archive.json").write_text(broken)
    identity = workspace.load(machine)
    assert notice in workspace.log_messages
    (kept,) = workspace.file("").glob("keypair-archive.json.malformed-*")
    assert kept.read_text() == broken
    assert identity.view().archived == []


def test_no_repr_shows_a_secret():
    made = keys.make("now")
    assert made.ed25519_seed not in repr(made)
    assert made.x25519_privkey not in repr(keys.archived(made, "a", "b"))
