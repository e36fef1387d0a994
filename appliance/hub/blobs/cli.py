"""`agentlip put`, `agentlip get` and `agentlip erase`: files that texts name by their hash."""

import mimetypes
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import ProgressLine, Session, plain_app
from appliance.hub.blobs.wire import DEFAULT_MEDIA_TYPE, digest_of
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.whole_file import whole_file

CLOCK = SystemClock()
MIB = 1024 * 1024

put_app = plain_app(listed="Messages/put")
get_app = plain_app(listed="Messages/get")
erase_app = plain_app(listed="Messages/erase")
ReferenceArgument = Annotated[str, typer.Argument(metavar="REF", help="sha256:HEX, as put prints.")]


@put_app.command("put")
def put(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file; `-`: from standard input.")
    ],
    media_type: Annotated[
        str | None, typer.Option("--media-type", help="Such as text/plain (default: by name).")
    ] = None,
) -> None:
    """Store a file once, by its hash, and print its reference for messages.

    Example: agentlip put build.log
    """
    from appliance.sdk.blobs import put_file

    guessed = media_type or mimetypes.guess_type(file.name)[0] or DEFAULT_MEDIA_TYPE
    try:
        source = nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")
        with source as opened:
            put_ = put_file(session.hub(), opened, guessed, _show("sent"))
    except OSError as error:
        raise _unusable(file, error) from None
    usage = put_.usage
    session.answer(msgspec.to_builtins(put_), put_.blob.ref)
    if usage.bytes > 0.8 * usage.bytes_max:
        session.note(f"({usage.bytes:,} of {usage.bytes_max:,} bytes of the quota are used)")


@get_app.command("get")
def get(
    session: Session,
    ref: ReferenceArgument,
    output: Annotated[
        Path | None, typer.Option("--output", help="The file to write (default: standard output).")
    ] = None,
    span: Annotated[
        str | None, typer.Option("--range", help="Only these bytes, such as 0-99, 100- or -50.")
    ] = None,
) -> None:
    """Write a file's content, and check its hash.

    Example: agentlip get sha256:HEX --output build.log
    """
    from appliance.sdk.blobs import get_file

    digest_of(ref)
    if output is None:
        get_file(session.hub(), ref, sys.stdout.buffer, span)
        sys.stdout.buffer.flush()
        return
    try:
        with whole_file(output, private=False) as target:
            get_file(session.hub(), ref, target, span, _show("received"))
    except OSError as error:
        raise _unusable(output, error) from None
    session.answer({"ref": ref, "file": str(output)}, f"wrote {output}")


@erase_app.command("erase")
def erase(
    session: Session,
    ref: ReferenceArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm. Without it nothing is erased.")
    ] = False,
) -> None:
    """Erase a file now, although messages may name it. Backups keep their copies.

    Example: agentlip erase sha256:HEX --yes
    """
    from appliance.sdk.blobs import blob_path

    digest_of(ref)
    if not yes:
        raise Invalid("erasing can't be undone", hint="--yes")
    session.answer(session.hub().delete(blob_path(ref)), f"erased {ref}")


def _show(verb: str) -> Callable[[int, int | None], None]:
    line = ProgressLine(CLOCK)

    def show(done: int, total: int | None) -> None:
        whole = "" if total is None else f" of {total / MIB:.1f}"
        line.show(f"{done / MIB:.1f}{whole} MiB {verb}")

    return show


def _unusable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"{path}: {error.strerror}", hint="check the file's path and its permissions")
