"""The models and row tuples of all stores are what the migrations make."""

import re

from ops import write_declared, write_paths
from ops.size import GENERATED
from ops.write_models import CLASSES, render
from tests.contract.test_walls import ROOT, tracked

KERNEL = "appliance/kernel/model.py"


def test_generated_files_are_what_their_writers_make():
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in tracked("*.py")}
    generated = {name: text for name, text in files.items() if text.startswith(GENERATED)}
    made = render() | write_declared.render() | write_paths.render()
    assert generated == made, "run: just models settings"


def test_every_model_and_row_is_imported():
    """The generator omits a class that nobody imports; then its table needs no name."""
    made = "".join(render().values())
    names = [name for classes in CLASSES.values() for name in classes.values()]
    assert [name for name in names if not re.search(rf"class {name}(Row)?\(", made)] == []


def test_no_other_module_has_models():
    files = {str(file.relative_to(ROOT)) for file in tracked("appliance/*/model.py")}
    assert files == {name for name in render() if name.endswith("/model.py")} | {KERNEL}
