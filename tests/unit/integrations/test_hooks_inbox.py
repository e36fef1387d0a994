"""What hooks learn of this member: its names in a mesh, and the URL of its process."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.integrations.hooks_inbox import OwnNames, OwnUrl
from appliance.workspace.datadir import DataDir


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:7000"),
        ("0.0.0.0", "http://127.0.0.1:7000"),
        ("::", "http://[::1]:7000"),
    ],
)
def test_url_leads_to_this_machine(tmp_path: Path, host: str, url: str) -> None:
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    assert OwnUrl(host, datadir)().endswith(":0")
    (datadir.dir / "port").write_text("7000")
    assert OwnUrl(host, datadir)() == url


def test_name_comes_from_the_connection_or_the_broker_here() -> None:
    inbox = SimpleNamespace(
        connections={"far": SimpleNamespace(member_name="anna")},
        inbox=SimpleNamespace(broker_clients={"here": SimpleNamespace(member_name="ann")}),
    )
    names = OwnNames(inbox, SimpleNamespace(public_hex="ab"))
    assert [names(mesh) for mesh in ("far", "here", "unknown")] == [
        ["ab", "anna"], ["ab", "ann"], ["ab"],
    ]  # fmt: skip
