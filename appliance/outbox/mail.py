"""Mail: a send becomes one letter, handed to the server of the settings for all its recipients.

A send is delivered when the server took the letter for everybody. Where it refuses one of them,
nobody gets it: so a repetition never reaches anybody twice but after an answer that was lost, and
then under the same Message-ID.

    the server's answer         said of                     means
    2xx after the letter                                    delivered
    4xx, none, not in time      anything                    later
    5xx                         our name, sender, login     later: it says nothing of the send
    5xx                         a recipient, the letter     refused
"""

import ipaddress
import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from email.headerregistry import Address
from typing import Any

from appliance.kernel.config import BadSettings, secret
from appliance.kernel.errors import Invalid
from appliance.kernel.pool import within
from appliance.mesh.fingerprint import DestinationKind
from appliance.outbox import destination, mime, safe_connect
from appliance.outbox.brokerhttp import Unreachable
from appliance.outbox.safe_connect import Resolve
from appliance.outbox.settings import MailSettings
from appliance.outbox.target import MAIL, Delivered, Later, Meta, Outgoing, Refused, Result
from appliance.outbox.wire import MailNotAllowed, MessageTooLarge
from appliance.web.address import BadWebhookUrl

ANYWHERE = "*"
SENTENCE_CHARACTERS_MAX = 200
QUIT_SECONDS = 1.0
ABOUT_US = frozenset({530, 534, 535, 538})  # log in first, or otherwise
TOO_LARGE = 552
NOT_IN_TIME = "the mail server did not answer in time"


class MailTarget:
    """Delivers to `mailto:…`. Safe for many greenlets: each letter has a connection of its own."""

    name = MAIL

    def __init__(
        self,
        settings: MailSettings,
        origin: str,
        resolver: Resolve = safe_connect.resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`origin` is the workspace's own, for Message-IDs. Raises BadSettings."""
        _check(settings)
        self._settings = settings
        self._origin = origin
        self._resolve = resolver
        self._allow = frozenset(_allowed(one) for one in settings.allow)
        self._sender = Address(settings.sender_name, addr_spec=settings.sender)
        self._tls = tls or _trusting(settings.ca_file)

    # -- accepting -----------------------------------------------------------------------

    def place(self, to: str) -> tuple[DestinationKind, str, str]:
        """A route for each domain: one that takes nothing keeps no other waiting."""
        ref = destination.mail(to)
        addresses = destination.mail_addresses(ref)
        self._check_allowed(addresses)
        domain = addresses[0].partition("@")[2]
        return "queue", ref, f"{MAIL}://{domain}"

    def check(self, body: bytes, meta: Meta | None) -> None:
        """Raises Invalid for what no letter can be made of."""
        most = self._settings.message_bytes_max
        if len(body) > most:
            raise MessageTooLarge(
                f"the text of a mail has more than {most} bytes",
                details={"field": "message", "bytes_max": most},
            )
        wrong = mime.wrong_with(meta)
        if wrong:
            raise Invalid(wrong, details={"field": "meta"})

    def _check_allowed(self, addresses: Sequence[str]) -> None:
        if len(addresses) > self._settings.recipients_max:
            raise Invalid(
                f"more than {self._settings.recipients_max} recipients", details={"field": "to"}
            )
        for address in addresses:
            known = {address.lower(), "@" + address.partition("@")[2], ANYWHERE}
            if not known & self._allow:
                raise MailNotAllowed(details={"field": "to"})

    # -- delivering ----------------------------------------------------------------------

    def deliver(self, send: Outgoing) -> Result:
        recipients = destination.mail_addresses(send.destination_ref)
        try:
            self._check_allowed(recipients)
        except (Invalid, MailNotAllowed) as error:
            return Later(error.message)
        own_id = self._message_id(send.client_message_id)
        text = self._letter(send, recipients, own_id)
        handing = Handing(self._settings, self._tls, self._resolve)
        try:
            with within(self._settings.delivery_seconds):
                result = handing.hand_over(recipients, text)
        except TimeoutError:
            result = handing.broke(NOT_IN_TIME)
        except smtplib.SMTPServerDisconnected as error:
            late = isinstance(error.__context__, TimeoutError)
            result = handing.broke(NOT_IN_TIME if late else "the mail server left")
        except (OSError, smtplib.SMTPException, UnicodeError) as error:
            result = handing.broke(_trouble(error))
        finally:
            handing.end()
        if isinstance(result, Delivered):
            return Delivered(broker_message_id=own_id)
        return result

    def _message_id(self, client_message_id: str) -> str:
        return mime.message_id(self._origin, self._sender.domain, client_message_id)

    def _letter(self, send: Outgoing, recipients: Sequence[str], own_id: str) -> bytes:
        answers = send.reply_to_id
        return mime.written(
            own_id=own_id,
            answers=None if answers is None else self._message_id(answers),
            sender=self._sender,
            recipients=recipients,
            meta=send.meta,
            text=send.body,
            priority=send.priority,
            accepted_ms=send.accepted_ms,
        )


class Handing:
    """One letter on its way: what is said to the server, step by step."""

    def __init__(self, settings: MailSettings, tls: ssl.SSLContext, resolver: Resolve) -> None:
        self._settings = settings
        self._tls = tls
        self._resolve = resolver
        self._password = ""
        self._server: Pinned | None = None
        self._letter_is_out = False
        self._is_broken = False

    def hand_over(self, recipients: Sequence[str], text: bytes) -> Result:
        """May raise what the connection raises."""
        try:
            server = self._connected()
            return self._welcomed(server) or self._taken(server, recipients, text)
        except BadWebhookUrl as error:
            return Later(f"the mail server: {error.message}")
        except Unreachable:
            return Later("the mail server's name can't be resolved")
        except BadSettings:
            return Later("mail.password_file can't be read")

    def broke(self, reason: str) -> Result:
        """An attempt without an answer. The letter may have arrived all the same."""
        self._is_broken = True
        if self._letter_is_out:
            reason += " after the letter: it may have it, and gets it again under its Message-ID"
        return Later(reason)

    def end(self) -> None:
        """Leaves politely; the outcome is known already."""
        server = self._server
        if server is None:
            return
        with suppress(OSError, smtplib.SMTPException):
            if server.sock is not None and not self._is_broken:
                server.sock.settimeout(QUIT_SECONDS)
                with within(QUIT_SECONDS):
                    server.quit()
        server.close()

    def _connected(self) -> "Pinned":
        settings = self._settings
        addresses = safe_connect.judged(self._resolve, settings.host, settings.port, settings)
        for address in addresses:
            if settings.security == "none" and not settings.allow_plain and not _is_near(address):
                raise BadWebhookUrl("without encryption only on this machine, or mail.allow_plain")
        tls = self._tls if settings.security == "tls" else None

        def connect(address: str) -> Pinned:
            server = self._server = Pinned(settings, address, tls)
            try:
                server.greeting = server.connect(settings.host, settings.port)
            except OSError:
                server.close()
                raise
            return server

        return safe_connect.first_to_answer(addresses, connect)

    def _welcomed(self, server: "Pinned") -> Result | None:
        """Up to the login. What is refused here is about us, and kills no send."""
        settings = self._settings
        code, words = server.greeting
        if code != 220:
            return Later(self._said(code, words))
        try:
            server.ehlo_or_helo_if_needed()
            if settings.security == "starttls":
                server.starttls(context=self._tls)
                server.ehlo_or_helo_if_needed()
            if settings.user:
                self._password = secret(settings.password_file or "")
                server.login(settings.user, self._password)
        except smtplib.SMTPAuthenticationError as error:
            # Not in the server's words: they may repeat what we said.
            return Later(f"the mail server did not take our login ({error.smtp_code})")
        except smtplib.SMTPResponseException as error:
            return Later(self._said(error.smtp_code, error.smtp_error))
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPException:
            return Later("the mail server offers no STARTTLS, or no login that we know")
        return None

    def _taken(self, server: "Pinned", recipients: Sequence[str], text: bytes) -> Result:
        options = [f"size={len(text)}"] if server.has_extn("size") else []
        code, words = server.mail(self._settings.sender, options)
        if code != 250:
            refused = code == TOO_LARGE  # else it is about our address
            return self._judged(code, words) if refused else Later(self._said(code, words))
        worst: tuple[int, bytes] | None = None
        for recipient in recipients:
            code, words = server.rcpt(recipient)
            if code == 421 or (code not in (250, 251) and code > (worst or (0,))[0]):
                worst = code, words
            if code == 421:  # the server is about to leave
                break
        if worst is not None:
            return self._judged(*worst)
        try:
            self._letter_is_out = True
            code, words = server.data(text)
        except smtplib.SMTPDataError as error:
            code, words = error.smtp_code, _bytes(error.smtp_error)
        return Delivered() if code == 250 else self._judged(code, words)

    def _judged(self, code: int, words: bytes) -> Result:
        """An answer about the send itself."""
        if 500 <= code < 600 and code not in ABOUT_US:
            return Refused(self._said(code, words), str(code))
        return Later(self._said(code, words))

    def _said(self, code: int, words: bytes | str) -> str:
        """The server's sentence, short enough to keep, and without our password."""
        text = words if isinstance(words, str) else words.decode("utf-8", "replace")
        if self._password:
            text = text.replace(self._password, "***")
        plain = "".join(one if one.isprintable() else " " for one in text)
        return f"{code}: {' '.join(plain.split())}"[:SENTENCE_CHARACTERS_MAX]


class Pinned(smtplib.SMTP):
    """Goes to one address; the name stays in the TLS handshake."""

    greeting: tuple[int, bytes] = (0, b"")

    def __init__(self, settings: MailSettings, address: str, tls: ssl.SSLContext | None) -> None:
        name = settings.sender.partition("@")[2]  # asking who we are might wait for DNS
        super().__init__(local_hostname=name, timeout=settings.connect_seconds)
        self._host = settings.host
        self._address = address
        self._tls = tls
        self._reply_seconds = settings.reply_seconds

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((self._address, port), timeout)
        try:
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        connected.settimeout(self._reply_seconds)
        return connected


def _trouble(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS with the mail server: {error.reason or 'failed'}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens where the mail server should be"
    return f"the connection to the mail server failed: {type(error).__name__}"


def _bytes(words: Any) -> bytes:
    return words if isinstance(words, bytes) else str(words).encode()


def _is_near(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"settings: mail.ca_file: {error}") from None


def _allowed(entry: str) -> str:
    """An entry of mail.allow as it is compared."""
    if entry == ANYWHERE:
        return entry
    try:
        address = destination.mail_address(f"x{entry}" if entry.startswith("@") else entry)
    except destination.BadDestination:
        raise BadSettings(
            f"settings: mail.allow: '{entry}' is no address, no @ and a domain, and no *"
        ) from None
    return address.lower().removeprefix("x") if entry.startswith("@") else address.lower()


def _check(settings: MailSettings) -> None:
    try:
        destination.mail_address(settings.sender)
    except destination.BadDestination:
        raise BadSettings("settings: mail.sender has to be a mail address") from None
    if bool(settings.user) != bool(settings.password_file):
        raise BadSettings("settings: mail.user and mail.password_file need each other")
    if settings.password_file:
        try:
            secret(settings.password_file)
        except BadSettings as error:
            raise BadSettings(f"{error.message} (mail.password_file)") from None
