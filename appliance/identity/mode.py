"""Whether the key outlives the process, by settings and surroundings. Pure.

| settings | surroundings | mode | told |
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

PASSING = (
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "JENKINS_URL",
    "KUBERNETES_SERVICE_HOST",
)
"""Each of these says that the machine is gone soon; and so does CI=true."""

_RUNPOD = "RUNPOD_POD_ID"
_NO = ("", "0", "false", "no", "off")


class Chosen(NamedTuple):
    """`told` is a word for the log; empty when there is nothing to tell."""

    mode: Literal["persistent", "ephemeral"]
    told: str = ""
    warns: bool = False


def passing(environment: Mapping[str, str]) -> str | None:
    """The variable by which this is a CI job or a pod; None elsewhere."""
    if environment.get("CI", "").lower() not in _NO:
        return "CI"
    for name in PASSING:
        value = environment.get(name, "")
        # `GITLAB_CI=false` says no; an address or a number is a yes.
        if value and value.lower() != "false":
            return name
    return None


def in_ci(environment: Mapping[str, str]) -> bool:
    """Hooks are off there. A pod is no CI by itself."""
    found = passing(environment)
    return found is not None and found != "KUBERNETES_SERVICE_HOST"


def choose(wanted: Mode, environment: Mapping[str, str]) -> Chosen:
    if wanted == "ephemeral":
        return Chosen("ephemeral")
    short_lived = passing(environment) is not None
    if wanted == "persistent":
        if short_lived:
            return Chosen("persistent", "persistent_keypair_in_ci_environment", True)
        return Chosen("persistent")
    if short_lived:
        return Chosen("ephemeral")
    if environment.get(_RUNPOD):
        return Chosen("persistent", "runpod_persistent_default_assumed")
    return Chosen("persistent")
