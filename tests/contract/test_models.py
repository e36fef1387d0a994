"""The models and row tuples of all stores are what the migrations make."""

from appliance.workspace.schema import STORES
from ops import write_declared, write_paths
from ops.size import GENERATED
from ops.write_models import CLASSES, render
from tests.contract.test_walls import ROOT, tracked

WITHOUT_MODELS = {"auth"}  # `agentlip token` runs without peewee


def test_generated_files_are_what_their_writers_make():
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in tracked("*.py")}
    generated = {name: text for name, text in files.items() if text.startswith(GENERATED)}
    made = render() | write_declared.render() | write_paths.render()
    assert generated == made, "run: just models settings"


def test_every_store_has_models():
    assert CLASSES.keys() | WITHOUT_MODELS == set(STORES)


def test_no_other_module_has_models():
    files = {str(file.relative_to(ROOT)) for file in tracked("appliance/*/model.py")}
    assert files == {f"appliance/{package}/model.py" for package in (*CLASSES, "kernel")}
