"""A job through a real Spark Connect server."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.log import Log
from tests.support.until import until

pytestmark = pytest.mark.slow  # starts a server with an engine of its own
ROOT = Path(__file__).parents[2]
SECONDS_MAX = 400  # a busy machine
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
SERVER = f"""
import sys
from spark import session
port = f"spark.connect.grpc.binding.port={{sys.argv[1]}}"
conf = ("spark.plugins={PLUGIN}", "spark.connect.grpc.binding.address=127.0.0.1", port)
session.build("server", session.EngineSettings("local[1]", "700m", conf=conf))
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path):
    """The address of a server that wants the token in the file `token`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "other").write_text("fedcba9876543210")
    environment = os.environ | {
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": (tmp_path / "token").read_text(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)],
            env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=output,
        )  # fmt: skip
    try:
        until(lambda: b"listens" in log.read_bytes(), SECONDS_MAX, "the server listens")
        yield f"sc://localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def run_ingest(folder, address, token):
    words = ["ingest", "--in", folder / "in", "--out", folder / "lake", "--json", "--quiet"]
    words += ["--remote", address, "--remote-token-file", folder / token]
    command = [sys.executable, ROOT / "spark/run.py", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def test_job_runs_through_a_server_that_knows_its_token(server, tmp_path):
    log = Log()
    for _ in range(3):
        log.say(log.topic(log.channel()))
    log.export(tmp_path / "in")
    refused = run_ingest(tmp_path, server, "other")
    assert (refused.returncode, refused.stdout) == (21, "")
    assert f"Error: no Spark session at {server}" in refused.stderr
    assert not (tmp_path / "lake/silver").exists()
    done = run_ingest(tmp_path, server, "token")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["rows"] == 9  # channels, topics, messages
