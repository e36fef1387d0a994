"""Names of what tests make on an engine that the tests of other checkouts use at the same time."""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def labels(root: Path) -> dict[str, str]:
    """The label by which `ops/engine sweep` finds what is left of the tests of one checkout."""
    return {"agentlip.test": hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}


LABELS = labels(ROOT)
(CHECKOUT,) = LABELS.values()
# Networks must not overlap, and ops/compose.yaml has one of 172.30.78.
SUBNET = f"172.30.{128 + int(CHECKOUT, 16) % 127}"
