"""Submits a send as one mail to all its recipients, to the SMTP server in [mail].

A send is delivered when the server accepts the mail for all recipients. If it refuses a recipient,
the mail goes to nobody. So nobody gets a mail twice unless a reply was lost, and then with the same
Message-ID.

    server reply            about                       result
    2xx after the data                                  delivered
    4xx, none, timeout      anything                    retry
    5xx                     our name, sender, login     retry: the send is not at fault
    5xx                     a recipient, the mail       undeliverable
"""

import ipaddress
import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from email.headerregistry import Address
from typing import NamedTuple

from appliance.kernel.blank import printable
from appliance.kernel.config import BadSettings, secret
from appliance.kernel.errors import Invalid
from appliance.kernel.pool import time_limit
from appliance.mesh.fingerprint import DestinationKind
from appliance.outbox import destination, mime
from appliance.outbox.mail_rules import ANYWHERE, allow_entry, check_mail, tls_context
from appliance.outbox.settings import MailSettings
from appliance.outbox.target import (
    CODE_MAIL,
    MAIL,
    Deliver,
    Delivered,
    DeliveryTarget,
    Meta,
    Outgoing,
    Result,
    RetryLater,
    Undeliverable,
)
from appliance.outbox.wire import MailNotAllowed
from appliance.web.address import BadWebhookUrl, check_address

REPLY_SECONDS = 30.0  # for the connection, and for each server reply
DELIVERY_SECONDS = 120.0  # for one mail's whole delivery
RECIPIENTS_MAX = 10  # recipients per mail
SENDER_NAME = "Agentlip"  # display name in From
REPLY_CHARACTERS_MAX = 200
QUIT_SECONDS = 1.0
LOGIN_REQUIRED_CODES = frozenset({530, 534, 535, 538})  # the server wants a login, or another kind
TOO_LARGE = 552
TIMED_OUT = "the mail server did not respond in time"


class ServerRules(NamedTuple):
    """A mail server may be anywhere but in special networks, because the settings name it."""

    allow_loopback: bool = True
    allow_private: bool = True


SERVER_RULES = ServerRules()


class MailTarget(DeliveryTarget):
    """Delivers to `mailto:…`. Safe for many greenlets: each run has its own connection."""

    name = MAIL
    shares_connection = True

    def __init__(self, settings: MailSettings, origin: str) -> None:
        """`origin` identifies the workspace in Message-IDs. Raises BadSettings."""
        check_mail(settings)
        self._settings = settings
        self._origin = origin
        self._allow = frozenset(allow_entry(entry) for entry in settings.allow)
        self._sender = Address(SENDER_NAME, addr_spec=settings.sender)
        self._tls = tls_context(settings.ca_file)

    # -- accepting -----------------------------------------------------------------------

    def resolve(self, to: str) -> tuple[DestinationKind, str, str]:
        """Return a route per domain, so that a domain that is down blocks no other."""
        ref = destination.mail(to)
        addresses = destination.mail_addresses(ref)
        self._check_allowed(addresses)
        domain = addresses[0].partition("@")[2]
        return "queue", ref, f"{self.name}://{domain}"

    def check(self, body: bytes, meta: Meta | None) -> None:
        """Raise Invalid if the content can't become a mail."""
        problem = mime.meta_problem(meta)
        if problem:
            raise Invalid(problem, details={"field": "meta"})

    def _check_allowed(self, addresses: Sequence[str]) -> None:
        if len(addresses) > RECIPIENTS_MAX:
            raise Invalid(f"more than {RECIPIENTS_MAX} recipients", details={"field": "to"})
        for address in addresses:
            patterns = {address.lower(), "@" + address.partition("@")[2], ANYWHERE}
            if not patterns & self._allow:
                raise MailNotAllowed(details={"field": "to"})

    # -- delivering ----------------------------------------------------------------------

    @contextmanager
    def run(self) -> Iterator[Deliver]:
        with closing(MailSession(self._settings, self._tls)) as session:
            yield lambda sends: [self._deliver(session, send) for send in sends]

    def deliver(self, send: Outgoing) -> Result:
        with self.run() as deliver:
            return deliver([send])[0]

    def _deliver(self, session: "MailSession", send: Outgoing) -> Result:
        recipients = destination.mail_addresses(send.destination_ref)
        try:
            self._check_allowed(recipients)
        except (Invalid, MailNotAllowed) as error:
            return RetryLater(error.message)
        message_id = self._message_id(send.client_message_id)
        text = self._message(send, recipients, message_id)
        result = _submit(session, recipients, text)
        return Delivered(broker_message_id=message_id) if isinstance(result, Delivered) else result

    def _message_id(self, client_message_id: str) -> str:
        return mime.new_message_id(self._origin, self._sender.domain, client_message_id)

    def _message(self, send: Outgoing, recipients: Sequence[str], message_id: str) -> bytes:
        in_reply_to = send.reply_to_id
        return mime.render(
            message_id=message_id,
            in_reply_to=None if in_reply_to is None else self._message_id(in_reply_to),
            sender=self._sender,
            recipients=recipients,
            meta=send.meta,
            text=send.body,
            priority=send.priority,
            accepted_ms=send.accepted_ms,
        )


class CodeMailTarget(MailTarget):
    """Mails that the relay itself writes, to addresses that want to be verified. Clients can't
    use this target, so `allow` in `[mail]` does not apply."""

    name = CODE_MAIL
    internal_only = True

    def _check_allowed(self, addresses: Sequence[str]) -> None:
        if len(addresses) != 1:
            raise Invalid("a code has one recipient", details={"field": "to"})


class MailSession:
    """A session with the SMTP server, for mails one after another."""

    def __init__(self, settings: MailSettings, tls: ssl.SSLContext) -> None:
        self._settings = settings
        self._tls = tls
        self._password = ""
        self._server: smtplib.SMTP | None = None
        self._message_sent = False
        self._is_broken = False

    def submit(self, recipients: Sequence[str], text: bytes) -> Result:
        """Submit a mail. Raises the connection's errors."""
        self._message_sent = False
        try:
            server = self._begin()
        except BadWebhookUrl as error:
            return RetryLater(f"the mail server: {error.message}")
        except BadSettings:
            return RetryLater("mail.password_file can't be read")
        except smtplib.SMTPAuthenticationError as error:
            # Without the server's text, which may repeat the password.
            return RetryLater(f"the mail server refused the login ({error.smtp_code})")
        except smtplib.SMTPResponseException as error:
            return RetryLater(self._reply_text(error.smtp_code, error.smtp_error))
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPException:
            return RetryLater("the mail server offers no STARTTLS or no supported login")
        return self._transfer(server, recipients, text)

    def failure(self, reason: str) -> Result:
        """Return the result for an attempt without a reply. The mail may have been accepted
        nevertheless."""
        self._is_broken = True
        if self._message_sent:
            reason += " after the mail was sent; the mail is sent again with the same Message-ID"
        return RetryLater(reason)

    def close(self) -> None:
        """End the session; the result is already known."""
        server = self._server
        if server is None:
            return
        with suppress(OSError, smtplib.SMTPException):
            if server.sock is not None and not self._is_broken:
                server.sock.settimeout(QUIT_SECONDS)
                with time_limit(QUIT_SECONDS):
                    server.quit()
        server.close()

    def _begin(self) -> smtplib.SMTP:
        """Return the former mail's connection, or a new one if the server has ended that."""
        if self._server is not None:
            with suppress(smtplib.SMTPServerDisconnected):
                if self._server.rset()[0] == 250:
                    return self._server
            self._server.close()
        return self._log_in()

    def _log_in(self) -> smtplib.SMTP:
        """Connect, start TLS and log in. A refusal here is not about the send, so it is retried."""
        settings = self._settings
        server = self._server = self._connect()
        self._check_peer(_peer_of(server))
        server.ehlo_or_helo_if_needed()
        if settings.security == "starttls":
            server.starttls(context=self._tls)
            server.ehlo_or_helo_if_needed()
        if settings.user:
            self._password = secret(settings.password_file or "", "mail.password_file")
            server.login(settings.user, self._password)
        return server

    def _connect(self) -> smtplib.SMTP:
        settings = self._settings
        name = settings.sender.partition("@")[2]  # the default would need a DNS lookup
        address = settings.host, settings.port, name
        if settings.security == "tls":
            return smtplib.SMTP_SSL(*address, timeout=REPLY_SECONDS, context=self._tls)
        return smtplib.SMTP(*address, timeout=REPLY_SECONDS)

    def _check_peer(self, address: str) -> None:
        """Raise BadWebhookUrl before anything is sent to an address that is not allowed."""
        check_address(address, SERVER_RULES)
        settings = self._settings
        local = ipaddress.ip_address(address).is_loopback
        if settings.security == "none" and not settings.allow_plain and not local:
            raise BadWebhookUrl(
                "security 'none' to another machine is not allowed (mail.allow_plain)"
            )

    def _transfer(self, server: smtplib.SMTP, recipients: Sequence[str], text: bytes) -> Result:
        options = [f"size={len(text)}"] if server.has_extn("size") else []
        code, reply = server.mail(self._settings.sender, options)
        if code == TOO_LARGE:
            return self._result_of(code, reply)
        if code != 250:  # this refusal is about the sender address
            return RetryLater(self._reply_text(code, reply))
        worst: tuple[int, bytes] | None = None
        for recipient in recipients:
            code, reply = server.rcpt(recipient)
            if code == 421 or (code not in (250, 251) and code > (worst or (0,))[0]):
                worst = code, reply
            if code == 421:  # the server closes the connection
                break
        if worst is not None:
            return self._result_of(*worst)
        try:
            self._message_sent = True
            code, reply = server.data(text)
        except smtplib.SMTPDataError as error:
            return self._result_of(error.smtp_code, error.smtp_error)
        return Delivered() if code == 250 else self._result_of(code, reply)

    def _result_of(self, code: int, reply: bytes | str) -> Result:
        """Return the result for a reply about the mail itself."""
        if 500 <= code < 600 and code not in LOGIN_REQUIRED_CODES:
            return Undeliverable(self._reply_text(code, reply), str(code))
        return RetryLater(self._reply_text(code, reply))

    def _reply_text(self, code: int, reply: bytes | str) -> str:
        """Return the server's reply as one short line, without the password."""
        text = reply if isinstance(reply, str) else reply.decode("utf-8", "replace")
        if self._password:
            text = text.replace(self._password, "***")
        return f"{code}: {' '.join(printable(text, ' ').split())}"[:REPLY_CHARACTERS_MAX]


def _peer_of(server: smtplib.SMTP) -> str:
    """Return the connected server's address."""
    assert server.sock is not None
    return str(server.sock.getpeername()[0])


def _submit(session: MailSession, recipients: Sequence[str], text: bytes) -> Result:
    try:
        with time_limit(DELIVERY_SECONDS):
            return session.submit(recipients, text)
    except TimeoutError:
        return session.failure(TIMED_OUT)
    except smtplib.SMTPServerDisconnected as error:
        late = isinstance(error.__context__, TimeoutError)
        return session.failure(TIMED_OUT if late else "the mail server closed the connection")
    except (OSError, smtplib.SMTPException, UnicodeError) as error:
        return session.failure(_error_text(error))


def _error_text(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS handshake with the mail server failed: {error.reason or 'unknown reason'}"
    if isinstance(error, ConnectionRefusedError):
        return "the mail server refused the connection"
    return f"the connection to the mail server failed: {type(error).__name__}"
