"""Every module of `appliance.sdk` under its installed name: the same objects, loaded once."""

import sys
from importlib import import_module
from pkgutil import iter_modules

import appliance.sdk

for _module in iter_modules(appliance.sdk.__path__):
    sys.modules[f"{__name__}.{_module.name}"] = import_module(f"appliance.sdk.{_module.name}")
sys.modules[__name__] = appliance.sdk
