"""Secrets from files, as container engines and Kubernetes mount them."""

from pathlib import Path

from spark.errors import Usage

BYTES_MAX = 4096
LENGTH_MIN = 16  # characters; shorter ones can be guessed
HINT = "create one: openssl rand -hex 32 > FILE (readable by uid 185)"
TOKEN_HINT = "create one on the appliance: agentlip token create"


def read(path: str | Path | None, hint: str = HINT) -> str | None:
    """Return the file's secret, without surrounding white space; None without a path. Raises
    Usage."""
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            text = file.read(BYTES_MAX + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Usage(f"the secret file {path} cannot be read: {reason}", hint) from None
    if not LENGTH_MIN <= len(text) <= BYTES_MAX or any(not " " < c < "\x7f" for c in text):
        raise Usage(f"the secret file {path} contains no secret of {LENGTH_MIN} characters", hint)
    return text
