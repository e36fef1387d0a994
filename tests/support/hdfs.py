"""A real HDFS on this machine only: a name node and a data node, as processes of Hadoop."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hdfs_native import Client, WriteOptions

from tests.support.until import until

START_SECONDS_MAX = 120.0
SERVER = "org.apache.hadoop.hdfs.server"
OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # for a short life
JARS = Path(sys.prefix) / "hdfs-jars"
SPARK_JARS = Path(sys.prefix) / "lib/python3.11/site-packages/pyspark/jars"
OF_SPARK = ("hadoop-client-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*")
LOCAL = ("dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address",
         "dfs.namenode.http-address")  # fmt: skip


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """The URL of the file system, when it accepts files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"hdfs://127.0.0.1:{free.getsockname()[1]}"
    _configure(folder, url)
    with ExitStack() as stack:
        _start(folder, "namenode.NameNode", "-format").wait(START_SECONDS_MAX)
        for name in ("namenode.NameNode", "datanode.DataNode"):
            process = stack.enter_context(_start(folder, name))
            stack.callback(process.kill)
        client = Client(url, {"dfs.client.failover.max.attempts": "1"})
        until(lambda: _accepts(client), START_SECONDS_MAX, "HDFS accepts files", 0.2)
        yield url


def upload(url: str, folder: Path, below: str) -> None:
    client = Client(url)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        _put(client, f"/{below}/{file.relative_to(folder)}", file.read_bytes())


def names(url: str, below: str) -> list[str]:
    """The files below a folder, relative to it."""
    entries = Client(url).list_status(f"/{below}", recursive=True)
    return sorted(each.path.removeprefix(f"/{below}/") for each in entries if not each.isdir)


def _put(client: Client, path: str, content: bytes) -> None:
    with client.create(path, WriteOptions(overwrite=True, create_parent=True)) as file:
        file.write(content)


def _accepts(client: Client) -> bool:
    with suppress(OSError, RuntimeError):
        _put(client, "/probe", b"probe")
        return True
    return False


def _configure(folder: Path, url: str) -> None:
    settings = {
        "fs.defaultFS": url,
        "dfs.namenode.name.dir": folder / "names",
        "dfs.datanode.data.dir": folder / "data",
        "dfs.replication": 1,
        "dfs.permissions.enabled": "false",
        **dict.fromkeys(LOCAL, "127.0.0.1:0"),
    }
    rows = "".join(f"<property><name>{name}</name><value>{value}</value></property>"
                   for name, value in settings.items())  # fmt: skip
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(f"<configuration>{rows}</configuration>")


def _start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    paths = [folder, *JARS.iterdir()]
    paths += [jar for pattern in OF_SPARK for jar in SPARK_JARS.glob(f"{pattern}.jar")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [shutil.which("java") or "java", *OPTIONS, "-cp", ":".join(map(str, paths)),
             f"{SERVER}.{name}", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
