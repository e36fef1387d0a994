"""A plugin that calls the kernel itself, and one that wants to stay: in real processes."""

import ctypes.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.hub.plugins import proof, wire, worker
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.hub.plugins.worker import PluginFailure, PluginWorker
from tests.support.until import gevent_until
from tests.unit.hub.plugins.test_sandbox import needs_filter, needs_landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")

# Calls with their arguments; none may succeed.
CALLS = {
    "ptrace": "0, 0, 0, 0",
    "process_vm_readv": "{parent}, 0, 0, 0, 0, 0",
    "unshare": "0x10000000",
    "setns": "0, 0",
    "clone": "0x10000011, 0, 0, 0, 0",  # with a user namespace
    "clone3": "0, 0",
    "prctl": "1, 0, 0, 0, 0",  # PR_SET_PDEATHSIG
    "shmget": "0, 4096, 0o600",
    "msgget": "0, 0o600",
    "semget": "0, 1, 0o600",
    "mq_open": "b'/x', 0o102, 0o600, 0",
    "socket": "1, 1, 0",  # a Unix socket, of a container engine for instance
    "kill": "{parent}, 9",
    "tgkill": "{parent}, {parent}, 9",
    "rt_sigqueueinfo": "{parent}, 9, 0",
    "pidfd_open": "{parent}, 0",
    "io_uring_setup": "8, 0",
    "bpf": "0, 0, 0",
    "keyctl": "0, -3, 1",
    "add_key": "b'user', b'x', b'x', 1, -3",
    "mount": "b'none', b'/tmp', b'tmpfs', 0, 0",
    "umount2": "b'/proc', 0",
    "pivot_root": "b'/', b'/'",
    "chroot": "b'/'",
    "setuid": "0",
    "setresuid": "0, 0, 0",
    "setgroups": "0, 0",
    "capset": "0, 0",
    "perf_event_open": "0, 0, -1, -1, 0",
    "userfaultfd": "0",
    "memfd_create": "b'x', 0",
    "open_by_handle_at": "-100, 0, 0",
    "name_to_handle_at": "-100, b'/', 0, 0, 0",
    "init_module": "0, 0, b''",
    "kexec_load": "0, 0, 0, 0",
    "sethostname": "b'x', 1",
    "personality": "0xffffffff",
    "quotactl": "0, 0, 0, 0",
    "seccomp": "2, 0, 0",
    "landlock_create_ruleset": "0, 0, 1",
    "fanotify_init": "0, 0",
    "inotify_init1": "0",
    "setpriority": "0, {parent}, 19",
    "sched_setaffinity": "{parent}, 8, b'\\x01' * 8",
    "prlimit64": "{parent}, 7, 0, 0",
    "ioctl": "0, 0x5412, b'x'",  # TIOCSTI
    "fcntl": "0, 8, {parent}",  # F_SETOWN
    "fchmodat": "-100, b'/tmp', 0o777",
    "unlinkat": "-100, b'/tmp/x', 0",
    "renameat2": "-100, b'/tmp/x', -100, b'/tmp/y', 0",
    "mkdirat": "-100, b'/tmp/of-a-plugin', 0o700",
    "truncate": "b'/tmp/x', 0",
    "a call nobody knows": "1",
}
KEPT_WITH_CHILDREN = {"clone3": "ENOSYS"}  # so that libc uses clone, whose flags can be seen
CALL = """
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    words = [one if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments]
    if libc.syscall(ctypes.c_long(number), *words) == -1:
        raise type(__import__('errno').errorcode[ctypes.get_errno()], (Exception,), {})
"""


def calls():
    """name → a line that makes the call, with its number on this architecture."""
    import pyseccomp

    parent = os.getpid()
    results = {}
    for name, arguments in CALLS.items():
        number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
        number = 9999 if " " in name else number
        if number >= 0:
            results[name] = f"{CALL}\ncall({number}, {arguments.format(parent=parent)})"
    return results


@needs_filter
@pytest.mark.parametrize("more", [{}, {"network": True, "subprocesses": True}], ids=["bare", "all"])
def test_calls_that_are_not_on_the_list_are_refused(run, more):
    attempts = calls()
    assert len(attempts) > len(CALLS) - 4
    results, by = run(attempts, **more)
    expected = dict.fromkeys(attempts, "EPERM") | (KEPT_WITH_CHILDREN if more else {})
    assert results == expected
    assert by.isolation.seccomp
    assert by.isolation.no_new_privs
    steps = ("processes", "namespaces", "shared_memory", "survival")
    assert {getattr(by.isolation, step) for step in steps} == {"denied"}


@needs_filter
def test_hidden_plugin_stays_hidden_from_debuggers(run):
    """Nobody of its user may trace it or read its memory, and it can't change that."""
    attempts = {"shown": f"{CALL}\nassert libc.prctl(3, 0, 0, 0, 0) == 0"}
    attempts["again"] = f"{CALL}\nassert libc.prctl(4, 1, 0, 0, 0) == -1"
    results, _ = run(attempts)
    assert results == {"shown": "done", "again": "done"}


@needs_filter
def test_common_system_calls_are_allowed(run):
    results, _ = run(
        {
            "time": "import time; time.sleep(0.001); time.monotonic(); time.localtime()",
            "random": "import random, secrets, uuid; secrets.token_hex(); uuid.uuid4()",
            "hash": "import hashlib; hashlib.sha256(b'x').hexdigest()",
            "memory": "bytearray(10_000_000); import mmap; mmap.mmap(-1, 4096)",
            "text": "import json, re, decimal, datetime, zoneinfo, unicodedata, email, html",
            "pack": "import zlib, bz2, lzma, base64, struct",
            "sqlite": "import sqlite3; sqlite3.connect(':memory:').execute('SELECT 1')",
            "loop": "import asyncio; asyncio.run(asyncio.sleep(0))",
            "lock": "import threading, queue; queue.Queue().put(1); threading.Lock().acquire()",
            "select": "import selectors; selectors.DefaultSelector().select(0)",
            "standard": "sys.stdout.isatty(); os.get_terminal_size if 1 else 0; os.cpu_count()",
            "alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 0)",
            "logging": "import logging; logging.getLogger().warning('x')",
        }
    )
    assert set(results.values()) == {"done"}, results


# -- it wants to stay --------------------------------------------------------------------------

# Takes back the signal of its parent's end, and starts processes that hide in their own sessions.
STAYS = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
def enrich(message, config):
    while "stay" in message:
        time.sleep(1000)
    libc.prctl(1, 0, 0, 0, 0)
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    for _ in range(3):
        try:
            if os.fork() == 0:
                os.setsid()
                libc.prctl(1, 0, 0, 0, 0)
                if os.fork() == 0:
                    time.sleep(1000)
                os._exit(0)
        except OSError:
            pass
    return []
"""
PARENT = """
import sys, time
from pathlib import Path
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import PluginSource
from appliance.hub.plugins.worker import PluginWorker
own = PluginSettings('p', 'linkifier', subprocesses={subprocesses}, timeout_seconds=1000.0)
settings = PluginsSettings(require_isolation=False)
worker = PluginWorker(own, PluginSource({text!r}, ''), settings, Path({data!r}))
worker.ask(b'{{}}')
print(worker._child.pid, int(worker.isolation.pid_namespace), flush=True)
worker.ask(b'{{"stay":1}}')
"""


def below(root):
    """Processes that descend from `root`, with their start times: (pid, time)."""
    rows = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] != "Z":
            rows[int(path.name)] = (int(words[1]), words[19])
    processes, new = set(), {root}
    while new:
        new = {pid for pid, (parent, _) in rows.items() if parent in new}
        processes |= {(pid, rows[pid][1]) for pid in new}
    return processes


def until_below(root, count):
    """Once there are so many, all of them."""
    gevent_until(lambda: len(below(root)) >= count, what="the processes start")
    return below(root)


def lives(process):
    try:
        words = Path(f"/proc/{process[0]}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] != "Z" and words[19] == process[1]


def until_gone(processes):
    gevent_until(lambda: not any(map(lives, processes)), what="no process outlives the appliance")


@pytest.mark.parametrize("subprocesses", [False, True])
@pytest.mark.parametrize("victims", ["parent", "parent, supervisor", "supervisor, parent"])
def test_a_plugin_that_tries_to_stay_ends_with_the_appliance(
    data, subprocesses, victims, isolated_enough
):
    script = PARENT.format(subprocesses=subprocesses, text=STAYS, data=str(data))
    environment = {**os.environ, "PYTHONPATH": worker.ROOT}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        try:
            supervisor, namespace = map(int, parent.stdout.readline().split())
            processes = until_below(parent.pid, 5 if subprocesses else 2)
            isolated_enough(subprocesses, bool(namespace), victims)
            for name in victims.split(", "):
                os.kill({"parent": parent.pid, "supervisor": supervisor}[name], signal.SIGKILL)
            until_gone(processes)
        finally:
            parent.kill()


@pytest.fixture
def isolated_enough():
    """Skips what a machine without filter, or without namespaces, does not claim."""

    def check(subprocesses, namespace, victims):
        if "supervisor" in victims and not namespace:
            if subprocesses:
                pytest.skip("no PID namespace here: what it started is the supervisor's to end")
            if ctypes.util.find_library("seccomp") is None:
                pytest.skip("no filter here: it may take the signal back, and that is said")

    return check


# -- what is said of it ------------------------------------------------------------------------


def test_unconfirmed_isolation_is_not_claimed():
    """The report of a process that is not filtered at all."""
    steps = dict.fromkeys(wire.STEPS, "denied")
    claimed = wire.Isolation(user=None, landlock=7, seccomp=True, **steps)
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            results = proof.confirm(claimed, process.pid, os.getpid())
            assert results == wire.Isolation(uid=os.getuid())
            gone = proof.confirm(claimed, 2**22 + 1, os.getpid())
            assert gone == wire.Isolation()
        finally:
            process.kill()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@needs_landlock
def test_plugin_that_stays_root_is_reported_and_refused_subprocesses(data, tmp_path, monkeypatch):
    """As where Python lives in root's home: no other user can read it."""
    hidden = tmp_path / "home"
    hidden.mkdir(mode=0o700)
    moved = f"; import os; os.__file__ = {str(hidden / 'os.py')!r}; main()"
    monkeypatch.setattr(worker, "PROGRAM", worker.PROGRAM.replace("; main()", moved))
    source = PluginSource("def enrich(m, c): return []", "")
    rooted = PluginWorker(PluginSettings("p", "linkifier"), source, PluginsSettings(), data)
    rooted.start()
    assert (rooted.isolation.user, rooted.isolation.uid) == (None, 0)
    assert "root" in wire.gaps(rooted.isolation, network=False, subprocesses=False)
    rooted.stop()
    many = PluginWorker(
        PluginSettings("p", "linkifier", subprocesses=True), source, PluginsSettings(), data
    )
    with pytest.raises(PluginFailure) as failed:
        many.start()
    assert failed.value.outcome == "unisolated"
    assert "as root" in failed.value.message
