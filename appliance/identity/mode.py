"""Whether the key is persistent, from settings and environment. Pure.

| settings | environment | mode | notice |
| --- | --- | --- | --- |
| ephemeral | any | ephemeral | |
| persistent | CI or Kubernetes | persistent | persistent_keypair_in_ci_environment |
| persistent | else | persistent | |
| auto | CI or Kubernetes | ephemeral | |
| auto | RunPod | persistent | runpod_persistent_default_assumed |
| auto | else | persistent | |
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from appliance.identity.settings import Mode

SHORT_LIVED_VARIABLES = (
    "CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "JENKINS_URL",
    "KUBERNETES_SERVICE_HOST",
)
"""Each variable marks a short-lived machine, unless its value is in _NO."""

_RUNPOD = "RUNPOD_POD_ID"
_NO = ("", "0", "false", "no", "off")


class KeyMode(NamedTuple):
    """The key's mode. `notice`: a code for the log, or empty; `warns`: log it as a warning."""

    mode: Literal["persistent", "ephemeral"]
    notice: str = ""
    warns: bool = False


def short_lived_variable(environment: Mapping[str, str]) -> str | None:
    """Return the variable that marks a CI job or a pod; None elsewhere."""
    for name in SHORT_LIVED_VARIABLES:
        if environment.get(name, "").lower() not in _NO:
            return name
    return None


def in_ci(environment: Mapping[str, str]) -> bool:
    """Return whether this is a CI job, where hooks are off. A pod alone does not count."""
    variable = short_lived_variable(environment)
    return variable is not None and variable != "KUBERNETES_SERVICE_HOST"


def choose(setting: Mode, environment: Mapping[str, str]) -> KeyMode:
    short_lived = short_lived_variable(environment) is not None
    if setting == "ephemeral" or (setting == "auto" and short_lived):
        return KeyMode("ephemeral")
    if short_lived:
        return KeyMode("persistent", "persistent_keypair_in_ci_environment", True)
    if setting == "auto" and environment.get(_RUNPOD):
        return KeyMode("persistent", "runpod_persistent_default_assumed")
    return KeyMode("persistent")
