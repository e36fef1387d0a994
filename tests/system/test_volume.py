"""What the volume does to the appliance: read-only, foreign, full."""

import os

import pytest

pytestmark = [pytest.mark.container, pytest.mark.slow]


def assert_clear(code, output, *words):
    """It ended with a code, one sentence and no stack."""
    assert code == 1, output
    assert "Traceback" not in output
    assert len(output.strip().splitlines()) == 1, output
    for word in words:
        assert word in output


def test_a_read_only_volume_is_named(box, volume):
    assert_clear(*box(volume(), mode="ro").run(), "read-only", "/data")


def test_a_full_volume_is_named(box, volume):
    assert_clear(*box(volume(size="32k")).run(), "full", "/data")


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_folder_of_somebody_else_is_named_with_the_way_out(box, tmp_path, mode):
    if os.getuid() != 0:
        pytest.skip("only root can make folders of another user")
    path = tmp_path / "data"
    path.mkdir(mode=mode)
    os.chown(path, 4242, 4242)
    assert_clear(*box(str(path)).run(), "10001", "4242", "chown")


@pytest.mark.root
def test_runs_as_whoever_owns_the_folder(box, tmp_path):
    if os.getuid() != 0:
        pytest.skip("only root can make folders of another user")
    path = tmp_path / "data"
    path.mkdir()
    os.chown(path, 4242, 4242)
    appliance = box(str(path), user="4242:4242").start()
    assert appliance.request("GET", "/api/v1/channels")[0] == 200
