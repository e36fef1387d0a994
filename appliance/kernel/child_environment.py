"""The environment for processes that the appliance starts for itself."""

import os
import sys

from appliance.kernel.log import is_secret_name

OWN_PROCESS = "AGENTLIP_OWN_PROCESS"
"""Set in the appliance's own processes. Their commands are not an administrator's acts."""


def child_environment(*, secrets: bool = False) -> dict[str, str]:
    """Return this process's environment, with its module path. Object store keys (`AWS_…`) and
    other secrets are left out, except for a child that needs secrets (`secrets`)."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if secrets or not (name.startswith("AWS_") or (is_secret_name(name) and "__" not in name))
    }
    kept[OWN_PROCESS] = "1"
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return kept
