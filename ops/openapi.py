"""Writes all roles' OpenAPI description: python -m ops.openapi FILE.

A separate process, because it imports the server, which patches the standard library.
"""

import sys
from pathlib import Path

import msgspec

from appliance.web.openapi import document
from ops.write_docs import whole_appliance

if __name__ == "__main__":
    with whole_appliance() as whole:
        Path(sys.argv[1]).write_bytes(msgspec.json.encode(document(whole.routes())))
