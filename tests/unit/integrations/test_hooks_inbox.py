"""What hooks learn of the URL of their process."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.integrations.hooks_inbox import own_url
from appliance.web.settings import HttpSettings
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
    process = SimpleNamespace(served=datadir, section=lambda _: HttpSettings(host=host))
    assert own_url(process).endswith(":0")
    (datadir.dir / "port").write_text("7000")
    assert own_url(process) == url
