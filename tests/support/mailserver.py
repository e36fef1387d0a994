"""A real mail server in its own process: aiosmtpd, controlled by the test.

    python -m tests.support.mailserver FOLDER PORT
        [--starttls|--tls CERTIFICATE KEY] [--login USER PASSWORD]

Accepted mails are in FOLDER/mails.jsonl, received commands in FOLDER/commands.txt. The replies are
read from FOLDER/rules.json at each step: `greet`, `mail`, `rset` and `data` are replies, `rcpt` has
one for each address. A `data` of "cut" accepts the mail and closes the connection without a reply,
"lose" closes it without accepting, "hang" waits until the rule is removed.
"""

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult


class ReceivedMail(NamedTuple):
    """One accepted mail. `login` is the user that sent it, `tls` whether it was encrypted."""

    sender: str
    recipients: list[str]
    raw: bytes
    login: str | None
    tls: bool

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.raw, policy=policy.SMTP)  # type: ignore[return-value]

    @property
    def id(self) -> str:
        return str(self.message["Message-ID"])

    @property
    def text(self) -> str:
        return str(self.message.get_content())


class MailServer:
    """The server process and its rules."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        folder.mkdir(exist_ok=True)
        self.rule()
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start, or restart on the same port."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mailserver", str(self.folder), str(self.port),
             *self.flags],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def rule(self, **rules: Any) -> None:
        """Set the replies; without rules it accepts everything."""
        following = self.folder / "rules.new"
        following.write_text(json.dumps(rules))
        following.replace(self.folder / "rules.json")

    def reset(self) -> None:
        """Reset for the next test."""
        self.rule()
        for name in ("mails.jsonl", "commands.txt"):
            (self.folder / name).unlink(missing_ok=True)
        if self.process is None:
            self.start()

    @property
    def mails(self) -> list[ReceivedMail]:
        try:
            lines = (self.folder / "mails.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = [json.loads(line) for line in lines]
        return [ReceivedMail(**{**row, "raw": row["raw"].encode("latin-1")}) for row in rows]

    @property
    def commands(self) -> list[str]:
        try:
            return (self.folder / "commands.txt").read_text().splitlines()
        except FileNotFoundError:
            return []


@contextmanager
def mail_server(folder: Path, *flags: Any) -> Iterator[MailServer]:
    server = MailServer(folder, *[str(flag) for flag in flags])
    server.start()
    try:
        yield server
    finally:
        server.kill()


class Handler:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rules(self) -> dict[str, Any]:
        rules: dict[str, Any] = json.loads((self._folder / "rules.json").read_text())
        return rules

    def note(self, command: str) -> None:
        with (self._folder / "commands.txt").open("a") as file:
            file.write(command + "\n")

    async def handle_EHLO(self, _server, session, _envelope, hostname, responses):
        self.note("EHLO")
        session.host_name = hostname
        return responses

    async def handle_RSET(self, _server, _session, _envelope):
        self.note("RSET")
        return self.rules().get("rset", "250 OK")

    async def handle_MAIL(self, _server, _session, envelope, address, options):
        self.note(f"MAIL {address} {' '.join(options)}")
        if "mail" in self.rules():
            return self.rules()["mail"]
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, _server, _session, envelope, address, _options):
        self.note(f"RCPT {address}")
        answer = self.rules().get("rcpt", {}).get(address)
        if answer is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        self.note("DATA")
        while self.rules().get("data") == "hang":
            await asyncio.sleep(0.02)
        answer = self.rules().get("data", "250 OK")
        if answer == "cut" or answer.startswith("2"):
            self.keep(server, session, envelope)
        if answer in ("cut", "lose"):
            server.transport.abort()
            return "451 connection already closed"
        return answer

    def keep(self, server, session, envelope) -> None:
        kept = {
            "sender": envelope.mail_from,
            "recipients": envelope.rcpt_tos,
            "raw": envelope.original_content.decode("latin-1"),
            "login": session.auth_data.login.decode() if session.authenticated else None,
            "tls": server.transport.get_extra_info("ssl_object") is not None,
        }
        with (self._folder / "mails.jsonl").open("a") as file:
            file.write(json.dumps(kept) + "\n")


class Server(SMTP):
    """Greets with the reply of the rules."""

    async def push(self, status):
        greeting = self.event_handler.rules().get("greet")
        text = status if isinstance(status, str) else status.decode()
        if greeting is not None and text.startswith("220 ") and self.session.host_name is None:
            status = greeting
        await super().push(status)


async def serve(arguments: argparse.Namespace) -> None:
    handler = Handler(arguments.folder)

    def context(names: list[str] | None) -> ssl.SSLContext | None:
        if names is None:
            return None
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*names)
        return made

    def judge(_server, _session, _envelope, _mechanism, data) -> AuthResult:
        good = [data.login.decode(), data.password.decode()] == arguments.login
        return AuthResult(success=good, handled=good, auth_data=data)

    starttls, tls = context(arguments.starttls), context(arguments.tls)

    def session() -> Server:
        return Server(
            handler, hostname="mail.test", tls_context=starttls, require_starttls=bool(starttls),
            authenticator=judge if arguments.login else None, auth_required=bool(arguments.login),
            auth_exclude_mechanism=() if arguments.login else ("LOGIN", "PLAIN"),
            auth_require_tls=bool(starttls), data_size_limit=1_000_000,
            loop=asyncio.get_running_loop(),
        )  # fmt: skip

    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", arguments.port, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--starttls", nargs=2)
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--login", nargs=2)
    asyncio.run(serve(parser.parse_args()))
