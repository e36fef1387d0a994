"""The TypeScript client as its users have it: the package from its tarball on every platform, with
a served appliance that starts again meanwhile."""

import json
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import appliance
from ops import node, typescript_client
from tests.contract.test_walls import ROOT
from tests.support.chromium import browser_page
from tests.support.installs import tree_in
from tests.support.servedhub import ServedHub, serve

pytestmark = pytest.mark.slow
PARTS = ["hub", "inbox", "asks", "courier", "bus", "errors"]
DENO_FLAGS = ["--no-prompt", "--allow-net", "--allow-read", "--allow-env"]
PLATFORMS = {
    "node": ["node"],
    "bun": ["node_modules/@oven/*/bin/bun"],
    "deno": ["node_modules/@deno/*/deno", "run", *DENO_FLAGS],
}
SECONDS_MAX = 60
STRICT = {"strict": True, "noEmit": True, "module": "NodeNext", "target": "ES2022", "types": []}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's folder in a checkout, with the programs that run and check it."""
    node.put_on_path()
    folder = tree_in(tmp_path_factory.mktemp("source")) / "clients/typescript"
    node.run(folder, "npm", "ci", "--ignore-scripts", "--no-audit")
    return folder


@pytest.fixture(scope="module")
def project(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program's folder in which the tarball is installed."""
    folder = tmp_path_factory.mktemp("project")
    tarball = typescript_client.build(source, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    node.run(folder, "npm", "install", "--offline", "--no-audit", str(tarball))
    for name in ("scenario.mjs", "program.mjs"):
        shutil.copy(Path(__file__).parent / name, folder)
    return folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ServedHub]:
    with serve(tmp_path / "w") as hub:
        yield hub


def start(platform: Sequence[str], source: Path, project: Path, hub: ServedHub) -> subprocess.Popen:
    (program,) = source.glob(platform[0]) if "/" in platform[0] else [platform[0]]
    words = [program, *platform[1:], project / "program.mjs", hub.url, hub.token]
    return subprocess.Popen(
        words, cwd=hub.workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_program_uses_every_part_across_a_restart(platform, source, project, hub):
    steps = []
    with start(platform, source, project, hub) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while select.select([process.stdout], [], [], SECONDS_MAX)[0]:
            if not (step := process.stdout.readline().strip()):
                break
            steps.append(step)
            if step == "restart":
                hub.kill()
                hub.start()
            process.stdin.write("go\n")
            process.stdin.flush()
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()
    assert process.returncode == 0
    assert steps == ["restart", *PARTS, "workspace"]


class Files(SimpleHTTPRequestHandler):
    """Serves modules to pages with other origins."""

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_page_of_the_appliance_uses_every_part(project: Path, hub: ServedHub) -> None:
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(project)))
    Thread(target=files.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{files.server_port}"
    package = f"{address}/node_modules/agentlip-appliance/dist/index.js"
    try:
        with browser_page() as page:
            page.call("Page.setBypassCSP", enabled=True)
            page.open(f"{hub.url}/ui/")
            script = f"""(async () => {{
                const client = await import({json.dumps(package)});
                const {{ scenario }} = await import({json.dumps(address + "/scenario.mjs")});
                return scenario(client, location.origin, {json.dumps(hub.token)}, async () => {{}});
            }})()"""
            assert page.evaluate(script) == PARTS
    finally:
        files.shutdown()
        files.server_close()


def test_examples_have_the_right_types(source: Path, project: Path) -> None:
    text = (ROOT / "docs/how-to/typescript.md").read_text()
    examples = [part.partition("```")[0] for part in text.split("```ts\n")[1:]]
    assert len(examples) >= 3
    for number, example in enumerate(examples):
        (project / f"example{number}.mts").write_text(example)
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": STRICT}))
    node.run(project, str(source / "node_modules/.bin/tsc"), "-p", ".")


def test_package_has_the_version_and_needs_no_other(project: Path) -> None:
    package = json.loads((project / "node_modules/agentlip-appliance/package.json").read_text())
    assert package["version"] == appliance.__version__
    assert "dependencies" not in package
