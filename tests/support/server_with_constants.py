"""The server process with other values of some constants, so that a test need not wait for them.

Its first argument is a JSON object of dotted names and values.
"""

import json
import sys
from importlib import import_module
from typing import Any

import msgspec

from appliance.server import main  # first, because it patches the standard library


def set_constants(constants: dict[str, Any]) -> None:
    for path, value in constants.items():
        module, _, name = path.rpartition(".")
        target = import_module(module)
        assert hasattr(target, name), path
        if isinstance(value, dict):  # fields of a struct
            value = msgspec.structs.replace(getattr(target, name), **value)
        setattr(target, name, value)


if __name__ == "__main__":
    set_constants(json.loads(sys.argv.pop(1)))
    sys.exit(main())
