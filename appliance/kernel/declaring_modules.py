"""Finds the modules in which subsystems declare something, by their names' beginnings."""

from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType


def import_named(beginning: str, *packages: ModuleType) -> list[ModuleType]:
    """Import the modules in `packages` and below whose names begin so, such as `checks_rows`."""
    walked = [each for p in packages for each in walk_packages(p.__path__, f"{p.__name__}.")]
    names = [each.name for each in walked if not each.ispkg]
    return [
        import_module(name)
        for name in names
        if name.rpartition(".")[2].startswith(beginning) and not name.endswith(".__main__")
    ]
