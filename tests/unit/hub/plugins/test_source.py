"""Where the source of a plugin is read from, and what is refused."""

import os

import pytest

from appliance.hub.plugins import source
from appliance.hub.plugins.settings import PluginSettings
from appliance.hub.plugins.source import BadSource


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "workspace"
    (root / "plugins").mkdir(parents=True)
    (root / ".agentlip").mkdir()
    (root / "plugins" / "good.py").write_text("# good")
    (root / ".agentlip" / "evil.py").write_text("# evil")
    (tmp_path / "outside.py").write_text("# outside")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text("# far")
    return root


def text_of(workspace, module):
    return source.read(PluginSettings("p", "linkifier", module=module), workspace).text


def test_a_module_below_the_workspace_is_read(workspace):
    assert text_of(workspace, "plugins/good.py") == "# good"
    (workspace / "link.py").symlink_to("plugins/good.py")
    (workspace / "folder").symlink_to("plugins")
    assert text_of(workspace, "link.py") == text_of(workspace, "folder/good.py") == "# good"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("out.py", "../outside.py"),
        ("out.py", "/etc/hostname"),
        ("out.py", ".agentlip/evil.py"),
        ("out.py", "nowhere.py"),
        ("out.py", "out.py"),
        ("way/far.py", "../elsewhere"),
    ],
)
def test_no_link_leads_out(workspace, name, target):
    first = name.partition("/")[0]
    (workspace / first).symlink_to(target)
    with pytest.raises(BadSource):
        text_of(workspace, name)


@pytest.mark.parametrize(
    "module",
    ["../outside.py", "/etc/hostname", "plugins/../../outside.py", ".agentlip/evil.py", "plugins",
     "plugins/none.py", "", ".", "plugins/good.py/x.py", "a\0b.py", "p" * 5000 + ".py",
     "plugins/../.agentlip/evil.py"],
)  # fmt: skip
def test_module_outside_the_workspace_is_refused(workspace, module):
    with pytest.raises(BadSource):
        text_of(workspace, module)


def test_only_small_regular_files_are_read(workspace):
    os.mkfifo(workspace / "pipe.py")
    (workspace / "big.py").write_text("#" * (source.MODULE_BYTES_MAX + 1))
    (workspace / "latin.py").write_bytes(b"# \xff")
    for name in ("pipe.py", "big.py", "latin.py"):
        with pytest.raises(BadSource):
            text_of(workspace, name)


def test_a_plugin_needs_one_source(workspace):
    for own in (
        PluginSettings("p", "linkifier"),
        PluginSettings("p", "linkifier", builtin="urls", module="plugins/good.py"),
    ):
        with pytest.raises(BadSource):
            source.read(own, workspace)
