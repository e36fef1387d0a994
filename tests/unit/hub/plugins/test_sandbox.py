"""A hostile plugin: the calls its process may make, and isolation reported only where it holds."""

import ctypes.util
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import gevent
import pytest

from appliance import syscalls
from appliance.hub.plugins import wire, worker
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.hub.plugins.worker import PluginFailure, PluginWorker
from tests.support.until import gevent_until

SYSTEM_PYTHON = "/usr/bin/python3"
LANDLOCK = syscalls.landlock_version()

WRITES = {
    "write": "open(data + '/db.sqlite3', 'w')",
    "append": "open(data + '/server.json', 'a')",
    "update": "open(data + '/db.sqlite3', 'r+')",
    "create": "open(data + '/new', 'w')",
    "truncate": "os.truncate(data + '/db.sqlite3', 0)",
    "unlink": "os.unlink(data + '/token')",
    "rename": "os.rename(data + '/token', data + '/token2')",
    "replace": "os.rename('/tmp', data + '/locks')",
    "folder": "os.mkdir(data + '/folder')",
    "link": "os.symlink('/etc/passwd', data + '/link')",
    "hardlink": "os.link(data + '/token', '/tmp/token-of-plugin')",
    "fifo": "os.mkfifo(data + '/fifo')",
    "rmtree": "shutil.rmtree(data)",
    "modes": "os.chmod(data + '/token', 0o777)",
    "times": "os.utime(data + '/token', (0, 0))",
    "owner": "os.chown(data, 1, 1)",
    "attribute": "os.setxattr(data + '/token', 'user.x', b'x')",
    "read_and_cut": "os.open(data + '/db.sqlite3', os.O_RDONLY | os.O_TRUNC)",
    "through_proc": "open('/proc/self/root' + data + '/db.sqlite3', 'w')",
    "through_parent": "open('/proc/%d/root%s/db.sqlite3' % (appliance, data), 'w')",
}
READS = {
    "token": "open(data + '/token').read()",
    "listing": "os.listdir(data)",
    "environment": "open('/proc/%d/environ' % appliance, 'rb').read()",
    "memory": "open('/proc/%d/mem' % appliance, 'rb').read(1)",
}


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


FILTER = sys.platform == "linux" and ctypes.util.find_library("seccomp") is not None
needs_filter = pytest.mark.skipif(not FILTER, reason="no filter for this machine")
needs_landlock = pytest.mark.skipif(LANDLOCK < 1, reason="this kernel has no Landlock")


@needs_landlock
def test_plugin_cannot_write_into_the_data_directory(run, data):
    before = contents(data)
    results, by = run(WRITES)
    assert {name for name, came in results.items() if came == "done"} == set()
    assert contents(data) == before
    assert by.isolation.write == "denied"


@needs_landlock
def test_a_plugin_reads_no_secret_of_the_appliance(run):
    results, by = run(READS)
    assert {name for name, came in results.items() if came == "done"} == set()
    assert by.isolation.read == "denied"


@needs_landlock
def test_a_plugin_reads_libraries_and_what_the_settings_name(run, data):
    """Nothing else: the token of another workspace is as good as ours."""
    other = data.parent.parent / "other" / ".agentlip"
    other.mkdir(parents=True)
    (other / "token").write_text("of another workspace")
    for name in ("notes", "private"):
        (data.parent / name).mkdir()
        (data.parent / name / "file").write_text("x")
    attempts = {
        "named": "open(os.path.dirname(data) + '/notes/file').read()",
        "neighbour": "open(os.path.dirname(data) + '/private/file').read()",
        "workspace": "os.listdir(os.path.dirname(data))",
        "other": "open(os.path.dirname(data) + '/../other/.agentlip/token').read()",
        "home": "os.listdir(os.path.expanduser('~'))",
        "shadow": "open('/etc/shadow').read()",
        "processes": "os.listdir('/proc')",
        "system": "open('/etc/passwd').read()",
        "itself": "open('/proc/self/status').read()",
        "library": "import xml.etree.ElementTree",
        "null": "open('/dev/null', 'w').write('x')",
    }
    results, by = run(attempts, read=("notes",))
    assert {name for name, came in results.items() if came == "done"} == {
        *("named", "system", "itself", "library", "null")
    }
    assert by.isolation.files == "denied"
    results, by = run(attempts, read=(".",))  # all of it, still without .agentlip/
    assert results["neighbour"] == "done"
    assert by.isolation.read == "denied"
    results, _ = run(READS, read=(".", ".agentlip", ".agentlip/token", "/"))
    assert {name for name, came in results.items() if came == "done"} == set()


@needs_landlock
def test_link_beside_the_data_directory_grants_no_access(run, data):
    (data.parent / "door").symlink_to(data)
    results, _ = run(
        {
            "read": "open(os.path.dirname(data) + '/door/token').read()",
            "write": "open(os.path.dirname(data) + '/door/token', 'w')",
        },
        read=(".", "door"),
    )
    assert set(results.values()) == {"PermissionError"}


@needs_filter
def test_plugin_without_permission_cannot_connect(run):
    with gevent.socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        attempts = {
            "connect": f"socket.create_connection({listener.getsockname()!r})",
            "inet6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
            "names": "socket.getaddrinfo('localhost', 80)",
            "unix": "socket.socket(socket.AF_UNIX)",
            "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "packet": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        }
        closed, by = run(attempts)
        assert closed["connect"] == "PermissionError"
        assert by.isolation.network == "denied"
        allowed, by = run(attempts, network=True)
        done = {name for name, came in allowed.items() if came == "done"}
        assert done == {"connect", "inet6", "names"}
        assert by.isolation.network == "open"


def test_network_wait_ends_with_the_timeout(data):
    """The connection goes with the process."""
    with gevent.socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        text = (
            "import socket\ndef enrich(message, config):\n"
            f"    socket.create_connection({listener.getsockname()!r}).recv(1)\n"
        )
        own = PluginSettings("patient", "linkifier", network=True, timeout_seconds=0.3)
        settings = PluginsSettings(require_isolation=False)
        worker = PluginWorker(own, PluginSource(text, ""), settings, data)
        with gevent.Timeout(30):
            with pytest.raises(PluginFailure) as failed:
                worker.ask(b"{}")
            assert failed.value.outcome == "timeout"
            assert not worker.running
            connection, _ = listener.accept()
            assert connection.recv(1) == b""
            connection.close()


@needs_filter
def test_a_plugin_signals_and_makes_no_process(run):
    results, by = run(
        {
            "parent": "os.kill(appliance, 0)",
            "all": "os.kill(-1, 0)",
            "group": "os.killpg(0, 0)",
            "fork": "os.fork()",
            "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
            "thread": "__import__('_thread').start_new_thread(print, ())",
            "limit": "import resource; resource.prlimit(appliance, 7, (9, 9))",
            "own_limit": "import resource; resource.getrlimit(7); resource.prlimit(0, 7)",
            "slow": "os.setpriority(os.PRIO_PROCESS, appliance, 19)",
            "pin": "os.sched_setaffinity(appliance, {0})",
            "own": "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, appliance)",
            "flags": "import fcntl; fcntl.fcntl(0, fcntl.F_GETFL)",
            "unix": "socket.socket(socket.AF_UNIX)",
            "mail": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
            "pair": "socket.socketpair()",
        }
    )
    assert {name for name, came in results.items() if came == "done"} == {
        *("pair", "own_limit", "flags")
    }
    assert by.isolation.subprocesses == "denied"


def test_sandbox_limits_hold_against_code(run):
    results, _ = run(
        {
            "memory": "bytearray(10**9)",
            "files": "[open('/dev/null') for _ in range(1000)]",
            "core": "assert __import__('resource').getrlimit(4) == (0, 0)",
            "raise": "import resource; resource.setrlimit(resource.RLIMIT_AS, (10**10, 10**10))",
        }
    )
    assert results["memory"] == "MemoryError"
    assert results["files"] == "OSError"
    assert results["core"] == "done"


def test_plugin_environment_and_descriptors_are_bare(run, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_APPLIANCE", "x")
    results, _ = run(
        {
            "environment": "assert set(os.environ) <= {'PATH', 'LANG', 'LC_CTYPE'}, os.environ",
            "descriptors": "assert len(os.listdir('/proc/self/fd')) <= 5",
            "folder": "assert os.getcwd() == '/'",
            "session": "assert os.getsid(0) == os.getpid()",
            "output": "print('noise'); sys.stderr.write('noise')",
            "path": "assert not any(one.endswith('hub/plugins') for one in sys.path)",
        }
    )
    assert set(results.values()) == {"done"}, results


def test_a_plugin_that_uses_up_its_processor_time_is_ended(run, monkeypatch):
    monkeypatch.setattr(worker, "CPU_SECONDS", 1)
    source = PluginSource("def enrich(m, c):\n    while True: pass\n", "")
    settings = PluginsSettings(require_isolation=False)
    own = PluginSettings("busy", "linkifier", timeout_seconds=20.0)
    busy = PluginWorker(own, source, settings, Path("/nowhere/.agentlip"))
    with pytest.raises(PluginFailure) as failed:
        busy.ask(b"{}")
    assert failed.value.outcome == "crashed"
    assert not busy.running


# -- what is not there is not claimed ----------------------------------------------------------


def bare(monkeypatch, version, *, filtered=True, root=worker.ROOT):
    """Has the plugin's process meet another Landlock than there is, and a filter or none."""
    code = (
        f"sys.path.insert(0, {root!r}); from appliance import syscalls;"
        " from appliance.hub.plugins import seccomp;"
        f" syscalls.landlock_version = lambda: {version};"
    )
    if not filtered:
        code += " seccomp.pyseccomp = None;"
    monkeypatch.setattr(worker, "PROGRAM", worker.PROGRAM.replace("main()", f"{code} main()"))


@needs_landlock
@needs_filter
@pytest.mark.parametrize("version", [1, 2])
def test_old_landlock_suffices_with_the_filter(run, data, monkeypatch, version):
    bare(monkeypatch, version)
    before = contents(data)
    results, by = run({**WRITES, **READS})
    assert {name for name, came in results.items() if came == "done"} == set()
    assert contents(data) == before
    assert (by.isolation.write, by.isolation.landlock) == ("denied", version)


@pytest.mark.parametrize(
    ("version", "filtered", "attempt"),
    [
        (0, True, "open(data + '/db.sqlite3', 'a')"),
        # It lets a process cut off a file by its name.
        pytest.param(2, False, "os.truncate(data + '/db.sqlite3', 0)", marks=needs_landlock),
    ],
)
def test_isolation_that_does_not_suffice_is_not_claimed(
    run, data, monkeypatch, version, filtered, attempt
):
    bare(monkeypatch, version, filtered=filtered)
    results, by = run({"attempt": attempt}, seconds=5.0)
    if by.isolation.user is not None:
        pytest.skip("as root with a Python that others may read there is another user")
    assert results == {"attempt": "done"}  # the plugin could, and that is what is said
    assert (by.isolation.write, by.isolation.landlock) == ("open", version)
    assert by.isolation.read == "open"
    assert filtered or not by.isolation.seccomp


def test_module_is_not_sent_without_required_isolation(data, tmp_path, monkeypatch):
    bare(monkeypatch, 0)
    mark = tmp_path / "it-ran"
    source = PluginSource(f"open({str(mark)!r}, 'w')\ndef enrich(m, c): return []", "")
    plugin = PluginSettings("bad", "linkifier")
    shut = PluginWorker(plugin, source, PluginsSettings(require_isolation=True), data)
    with pytest.raises(PluginFailure) as failed:
        shut.start()
    if os.geteuid() == 0 and shut.isolation is not None and shut.isolation.user is not None:
        pytest.skip("another user")
    assert failed.value.outcome == "unisolated"
    assert not mark.exists()
    assert not shut.running
    loose = PluginWorker(plugin, source, PluginsSettings(require_isolation=False), data)
    loose.start()
    assert mark.exists()
    loose.stop()


# -- another user ------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(
    not Path(SYSTEM_PYTHON).exists(), reason="needs a Python that every user may read"
)
@pytest.mark.parametrize("landlock", [True, False])
def test_as_root_a_plugin_is_another_user(run, data, monkeypatch, landlock, tmp_path_factory):
    """Also where there is no Landlock: the folder is the appliance's user's alone."""
    copy = tmp_path_factory.mktemp("code") / "appliance"
    for name in ("child", "hub/plugins"):
        shutil.copytree(Path(worker.ROOT) / "appliance" / name, copy / name)
    shutil.copy(Path(worker.ROOT) / "appliance/syscalls.py", copy)
    for folder in (copy, copy / "hub"):
        (folder / "__init__.py").touch()
    if FILTER:
        shutil.copy(importlib.util.find_spec("pyseccomp").origin, copy.parent)
    monkeypatch.setattr(
        worker, "PROGRAM", worker.PROGRAM.replace(repr(worker.ROOT), repr(str(copy.parent)))
    )
    if not landlock:
        bare(monkeypatch, 0, filtered=False, root=str(copy.parent))
    monkeypatch.setattr(worker.sys, "executable", SYSTEM_PYTHON)
    before = contents(data)
    user = (
        "assert os.getresuid() == (65534,) * 3 and os.getresgid() == (65534,) * 3, os.getresuid()"
    )
    results, by = run(
        {**WRITES, **READS, "back": "os.setuid(0)", "fork": "os.fork()", "who": user,
         "groups": "assert os.getgroups() == []"}
    )  # fmt: skip
    assert {name for name, came in results.items() if came == "done"} == {"who", "groups"}
    assert contents(data) == before
    assert (by.isolation.user, by.isolation.write, by.isolation.read) == (65534, "denied", "denied")
    assert by.isolation.subprocesses == "denied"
    assert by.isolation.seccomp is (landlock and FILTER)
    assert by.isolation.uid == 65534
    gaps = wire.gaps(by.isolation, network=False, subprocesses=False)
    if FILTER:
        assert bool(gaps) is not landlock
    assert bool(by.isolation.landlock) is (landlock and LANDLOCK > 0)


def test_a_descendant_does_not_outlive_its_plugin(run, tmp_path):
    results, by = run(
        {"fork": "globals()['pid'] = os.fork()\nif pid == 0:\n    import time; time.sleep(60)"},
        subprocesses=True,
    )
    assert results == {"fork": "done"}
    group = by._child.pid
    by.stop()
    gevent_until(lambda: not group_exists(group))


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
