"""A reader that closes the output early (`agentlip … | head`) ends a command without an error."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import command, environment

COMMANDS = (("agentlip", "doctor", "--json"), ("agentlipd", "install-service", "--print"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_output_that_nobody_reads_ends_a_command_quietly(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    subprocess.run(command("agentlip", "init"), cwd=tmp_path, env=environment(), check=True)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*words), stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(),
        timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
