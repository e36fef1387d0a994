"""Implements a target in S3-compatible storage, with the library obstore.

Error messages contain the status and a short code, and never the server's text.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from appliance.backup.errors import (
    BackupError,
    BackupLibraryMissing,
    TargetFailed,
    TargetObjectMissing,
    TargetRefused,
    TargetUnreachable,
)
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target import OBJECTS_MAX, READ_BYTES
from appliance.kernel.errors import Invalid

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,40})</Code>")
_CERTIFICATE = re.compile(r"certificate|UnknownIssuer|NotValidForName", re.IGNORECASE)
_REGION = "us-east-1"  # expected by servers without regions
REQUEST_SECONDS_MAX = 120.0  # one request, with _PART_BYTES at most
CONNECT_SECONDS_MAX = 10.0  # several round trips on a bad connection
_BACKOFF, _BACKOFF_MAX = timedelta(seconds=1), timedelta(seconds=60)  # between attempts
_PART_BYTES = 16 * 1024 * 1024  # three are in memory; a file has 10,000 at most, or 160 GB


class Keys(NamedTuple):
    """Secret keys. Never printed: see `__repr__`."""

    access: str
    secret: str
    session: str | None

    def __repr__(self) -> str:
        return "Keys(…)"


class S3Target:
    """A bucket with objects `PREFIX/NAME/FILE`. Large files are sent in parts, which the server
    joins after receiving all parts."""

    def __init__(
        self, target: TargetSettings, settings: BackupSettings, workspace: Path, attempts_max: int
    ) -> None:
        self.name = target.name
        keys = _keys(target, workspace)
        certificates = _content(workspace, target, "ca_file") if target.ca_file else ""
        self._store = _store(target, settings, keys, certificates, attempts_max)

    def list(self, below: str = "") -> dict[str, int]:
        import obstore

        listed: dict[str, int] = {}
        count = 0
        with self._report_errors(below):
            for page in obstore.list(self._store, prefix=below or None, chunk_size=1000):
                for entry in page:
                    listed[entry["path"]] = entry["size"]
                count += len(page)  # a server may send one page forever
                if count > OBJECTS_MAX:
                    raise TargetFailed(f"the target has more than {OBJECTS_MAX:,} files")
        return listed

    def read(self, name: str) -> Iterator[bytes]:
        import obstore

        with self._report_errors(name):
            for piece in obstore.get(self._store, name).stream(min_chunk_size=READ_BYTES):
                yield bytes(piece)

    def write(self, name: str, content: Iterable[bytes]) -> None:
        import obstore

        pieces, first = iter(content), bytearray()
        while len(first) < _PART_BYTES and (piece := next(pieces, None)) is not None:
            first += piece
        small = len(first) < _PART_BYTES
        with self._report_errors(name):
            obstore.put(
                self._store,
                name,
                bytes(first) if small else chain((bytes(first),), pieces),
                use_multipart=not small,
                chunk_size=_PART_BYTES,
                max_concurrency=2,
            )

    def create(self, name: str, content: bytes) -> bool:
        """Write a small file, unless the file exists; return whether the file was written."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._report_errors(name):
            try:
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def remove(self, name: str) -> None:
        import obstore

        with self._report_errors(name):
            obstore.delete(self._store, name)

    @contextmanager
    def _report_errors(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            # The error has addresses and the server's words; `from None` keeps them out of logs.
            raise _translate(self.name, name, error) from None


def _translate(target: str, name: str, error: Exception) -> BackupError:
    text, _, debug = str(error).partition("\n\nDebug source")
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    code = match[1] if (match := _CODE.search(text)) else ""
    answer = f"target {target} answered {status} {code}".rstrip()
    if code == "NoSuchBucket":
        return TargetRefused(f"target {target}: the bucket does not exist")
    if isinstance(error, FileNotFoundError) or status == 404:
        return TargetObjectMissing(f"target {target} does not have {name or 'the bucket'}")
    if 300 <= status < 500 and status not in (408, 409, 429):
        return TargetRefused(answer)
    if status:
        return TargetUnreachable(answer)
    if "Received redirect" in text:
        return TargetRefused(f"target {target} sent the request elsewhere, as for a wrong region")
    if _CERTIFICATE.search(debug):
        return TargetRefused(f"target {target}: its certificate is not trusted; see its ca_file")
    return TargetUnreachable(f"target {target} can't be reached, or the connection broke")


def _store(
    target: TargetSettings,
    settings: BackupSettings,
    keys: Keys,
    certificates: str,
    attempts_max: int,
) -> Any:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise BackupLibraryMissing from None

    url, region = urlsplit(target.url), target.region or _REGION
    endpoint = target.endpoint or f"https://s3.{region}.amazonaws.com"
    # Everything is given, so that no variable such as AWS_ALLOW_HTTP changes it.
    client: Any = {
        "allow_http": _may_be_plain(target, endpoint),
        "allow_invalid_certificates": False,
        "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
    }
    if certificates:
        client["root_certificate"] = certificates.encode()

    def credential() -> Any:
        given = {"access_key_id": keys.access, "secret_access_key": keys.secret}
        return {**given, "token": keys.session, "expires_at": None}

    return S3Store(
        url.netloc,
        prefix=url.path.strip("/") or None,
        endpoint=endpoint,
        aws_endpoint_url_s3=endpoint,
        region=region,
        virtual_hosted_style_request=False,
        skip_signature=False,
        client_options=client,
        retry_config={
            "max_retries": attempts_max - 1,
            "retry_timeout": timedelta(seconds=settings.seconds_max),
            "backoff": {"init_backoff": _BACKOFF, "max_backoff": _BACKOFF_MAX, "base": 2},
        },
        credential_provider=credential,
    )


def _may_be_plain(target: TargetSettings, endpoint: str) -> bool:
    """Return whether the endpoint is an allowed http:// endpoint. Raises Invalid for a forbidden
    or malformed one."""
    address = urlsplit(endpoint)
    if address.username is not None or address.password is not None:
        raise Invalid(f"the endpoint for target {target.name} must not contain a password")
    if address.scheme == "https" and address.hostname:
        return False
    if address.scheme != "http" or not address.hostname:
        raise Invalid(
            f"the endpoint for target {target.name} is not an address",
            hint='endpoint = "https://s3.example.com"',
        )
    if not target.allow_http and not _is_loopback(address.hostname):
        raise Invalid(
            f"the endpoint for target {target.name} is not encrypted (http://)",
            hint="use https://, or set allow_http = true for a network that you trust",
        )
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _keys(target: TargetSettings, workspace: Path) -> Keys:
    access = _key(target, "access_key_file", "AWS_ACCESS_KEY_ID", workspace)
    secret = _key(target, "secret_key_file", "AWS_SECRET_ACCESS_KEY", workspace)
    if not access or not secret:
        raise Invalid(
            f"target {target.name} has no keys",
            hint="set the target's access_key_file and secret_key_file, or the environment"
            " variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    files = target.access_key_file or target.secret_key_file
    return Keys(access, secret, None if files else os.environ.get("AWS_SESSION_TOKEN"))


def _key(target: TargetSettings, name: str, variable: str, workspace: Path) -> str:
    given = getattr(target, name)
    return (_content(workspace, target, name) if given else os.environ.get(variable, "")).strip()


def _content(workspace: Path, target: TargetSettings, name: str) -> str:
    path = workspace / Path(getattr(target, name)).expanduser()
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        message = f"target {target.name}: {name}: {path} can't be read: {reason}"
        raise Invalid(message, hint=f"ls -l {path}") from None
