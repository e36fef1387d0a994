"""Serves the web UI's files from memory at `/ui/`.

The files contain no data and no secrets, and need no token. The policy allows scripts and styles
from this address only, and no inline ones, and refuses to turn text into markup.
"""

import gzip
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import falcon

from appliance import shared
from appliance.kernel.route import OPEN, Operation, Route
from appliance.ui import wire

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
    "vary": "Accept-Encoding",
}
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
VENDOR = "vendor"
BARE = "../ui"  # the page at `/ui`, whose files are one folder below


class UiFile(NamedTuple):
    """A file, kept compressed only: 0.4 MB less memory, and nearly every client accepts gzip."""

    compressed: bytes
    etag: str
    media: str

    @classmethod
    def make(cls, plain: bytes, suffix: str) -> "UiFile":
        return cls(
            gzip.compress(plain, 9, mtime=0),
            f'"{hashlib.sha256(plain).hexdigest()[:32]}"',
            MEDIA[suffix],
        )


class UiFiles:
    """The files, by their path below `/ui/`."""

    def __init__(self) -> None:
        folder = Path(__file__).with_name("static")
        vendor = {f"{VENDOR}/{path.name}": path for path in (folder / VENDOR).iterdir()}
        own = {path.name: path for path in folder.iterdir()}
        sources = {**own, **vendor, "theme.css": Path(shared.__file__).with_name("theme.css")}
        self.by_path = {
            path: UiFile.make(source.read_bytes(), source.suffix)
            for path, source in sorted(sources.items())
            if source.suffix in MEDIA
        }
        page = re.sub(rb'(href|src)="', rb'\1="ui/', (folder / "index.html").read_bytes())
        self.by_path[BARE] = UiFile.make(page, ".html")

    def on_get_index(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._answer(req, resp, "index.html")

    def on_get_bare(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._answer(req, resp, BARE)

    def on_get_file(self, req: falcon.Request, resp: falcon.Response, file: str) -> None:
        self._answer(req, resp, file)

    def on_get_vendor(self, req: falcon.Request, resp: falcon.Response, file: str) -> None:
        self._answer(req, resp, f"{VENDOR}/{file}")

    def _answer(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        file = self.by_path.get(path)
        if file is None:
            raise wire.NoSuchFile(details={"file": path[:200]})
        for name, value in {**HEADERS, "etag": file.etag}.items():
            resp.set_header(name, value)
        resp.content_type = file.media
        if file.etag in req.env.get("HTTP_IF_NONE_MATCH", ""):
            resp.status = falcon.HTTP_304
            return
        if "gzip" in req.env.get("HTTP_ACCEPT_ENCODING", ""):
            resp.set_header("content-encoding", "gzip")
            resp.data = file.compressed
        else:
            resp.data = gzip.decompress(file.compressed)


def routes() -> list[Route]:
    served = UiFiles()
    page = Operation(OPEN, "The web UI", media="text/html", query=wire.ReturnQuery)
    part = Operation(OPEN, "Get a script, style or picture for the web UI", media="*/*")
    return [
        Route("/ui", served, {"GET": page}, suffix="bare"),
        Route("/ui/", served, {"GET": page}, suffix="index"),
        Route("/ui/{file}", served, {"GET": part}, suffix="file"),
        Route("/ui/vendor/{file}", served, {"GET": part}, suffix="vendor"),
    ]
