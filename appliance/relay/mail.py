"""Sends verification codes to mail address owners."""

import sys
from typing import Protocol

from appliance.kernel.log import Log
from appliance.relay.wire import CODE_MINUTES
from appliance.workspace.datadir import DataDir

SUBJECT = "Your verification code"
FILE = "relay-codes.txt"  # in `.agentlip`, readable for its owner alone
KEPT_MAX = 20  # codes in the file


class CodeMail(Protocol):
    def send(self, key: str, address: str, subject: str, text: str) -> None:
        """Accept a mail durably, once per key."""


def text_of(agent: str, code: str) -> str:
    return (
        f"The code for the agent {agent} is {code}.\n\nThe code is valid for {CODE_MINUTES} "
        "minutes. If you did not ask for a code, ignore this mail: without the code nobody can "
        "use your"
        " address.\n"
    )


class LocalCodes:
    """Codes without a mail server, for the first minute: they go to a file in the workspace, and
    to the terminal of an appliance in the foreground."""

    def __init__(self, datadir: DataDir, log: Log) -> None:
        self._datadir = datadir
        self._log = log
        self._lines: list[str] = []

    def send(self, key: str, address: str, subject: str, text: str) -> None:
        del key, subject
        line = f"{address}: {text.partition(chr(10))[0]}\n"
        self._lines = [*self._lines, line][-KEPT_MAX:]
        path = self._datadir.dir / FILE
        self._datadir.write_private(path, "".join(self._lines))
        if sys.stderr.isatty():
            sys.stderr.write(line)
        self._log.warning("a verification code was written to a file: no mail server is set")
