"""Checks the mail server's settings before anything connects."""

import ssl

from appliance.kernel.config import BadSettings, secret
from appliance.outbox import destination
from appliance.outbox.settings import MailSettings

ANYWHERE = "*"


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Check the files and values. Raises BadSettings."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"settings: mail.ca_file: {error.strerror or error}") from None


def allow_entry(entry: str) -> str:
    """Return a mail.allow entry in the form that is compared. Raises BadSettings."""
    if entry == ANYWHERE:
        return entry
    try:
        address = destination.mail_address(f"x{entry}" if entry.startswith("@") else entry)
    except destination.BadDestination:
        raise BadSettings(
            f"settings: mail.allow: '{entry}' is not an address, @DOMAIN or *"
        ) from None
    return address.lower().removeprefix("x") if entry.startswith("@") else address.lower()


def check_mail(settings: MailSettings) -> None:
    """Check the files and values. Raises BadSettings."""
    tls_context(settings.ca_file)
    for entry in settings.allow:
        allow_entry(entry)
    try:
        destination.mail_address(settings.sender)
    except destination.BadDestination:
        raise BadSettings("settings: mail.sender must be a mail address") from None
    if bool(settings.user) != bool(settings.password_file):
        raise BadSettings("settings: set both mail.user and mail.password_file, or neither")
    if settings.password_file:
        secret(settings.password_file, "mail.password_file")
