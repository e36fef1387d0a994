"""A hub of another implementation of the hub specification, as far as others can see it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.sdk.reader import WorkspaceReader
from appliance.workspace.datadir import DataDir, ServerFile
from tests.support.faulty_hub import FakeHttp, http_hub


@contextmanager
def foreign_hub(datadir: DataDir) -> Iterator[ServerFile]:
    """It wrote `server.json` and answers `/health`; it doesn't take our lock."""
    with WorkspaceReader(datadir.database("hub")) as reader:
        db_id = reader.db_id
    health = {
        "instance_id": "foreign", "db_id": db_id, "schema_version": 1, "protocol_version": "v1"
    }  # fmt: skip
    with http_hub(FakeHttp((200, {}, health))) as endpoint:
        written = {
            "instance_id": "foreign", "db_id": db_id, "port": endpoint.port, "host": "127.0.0.1",
            "auth_token": "t" * 64, "pid": os.getpid(), "started_at": "2026-02-04T20:00:00.000Z",
            "protocol_version": "v1",
        }  # fmt: skip
        datadir.server_file.write_text(json.dumps(written), encoding="utf-8")
        server = datadir.read_server()
        assert server is not None
        try:
            yield server
        finally:
            datadir.server_file.unlink(missing_ok=True)
