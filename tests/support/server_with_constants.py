"""The server process with other values of some constants: the first argument has them as JSON."""

import json
import sys

from appliance.server import main  # first, because it patches the standard library
from tests.support.constants import set_constants

if __name__ == "__main__":
    set_constants(json.loads(sys.argv.pop(1)))
    sys.exit(main())
