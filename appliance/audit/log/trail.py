"""Records acts: the intent before an act, and its outcome after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.audit.log import file
from appliance.audit.log.record import AuditRecord, Phase, detail_of
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.tool import Tool


class AuditTrail:
    def __init__(
        self, path: Path, clock: Clock, run: Callable[..., Any], *, read_only: bool = False
    ) -> None:
        """Take `run(function, *args)`, which appends; the server runs appends in a thread.
        `read_only`: nothing is recorded, and the stores refuse the acts."""
        self.path = path
        self._clock = clock
        self._run = run
        self._read_only = read_only

    def begin(self, act: str, actor: str, via: str, **facts: Any) -> AuditRecord | None:
        """Record an intent; return the input for `end`. Raises AuditUnavailable or StorageFull:
        then the act must not be done."""
        detail = detail_of(facts)
        record = AuditRecord(0, self._clock.now_ms(), act, "began", None, actor, via, detail)
        return self._append(record)

    def end(self, began: AuditRecord | None, phase: Phase, **facts: Any) -> None:
        """Record the outcome. Raises like `begin`, although the act was done."""
        if began is not None:
            now_ms, detail = self._clock.now_ms(), detail_of(facts)
            self._append(began._replace(at_ms=now_ms, phase=phase, detail=detail))

    @contextmanager
    def record(self, act: str, actor: str, via: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """Record the block. Entries added to the dictionary are recorded with the outcome."""
        began, outcome = self.begin(act, actor, via, **facts), dict[str, Any]()
        try:
            yield outcome
        except BaseException as error:
            code = getattr(error, "exit_code", None)
            phase: Phase = "refused" if isinstance(error, ApplianceError) else "failed"
            outcome |= {"code": getattr(error, "code", None), "exit_code": code}
            self.end(began, phase if code is None else "done", **outcome)
            raise
        self.end(began, "done", **outcome)

    def call(self, tool: Tool, command: Any, who: Principal) -> Any:
        """Call a tool, and record the call if the tool is `audited`."""
        if not tool.audited:
            return tool.call(command, who)
        with self.record(f"tool {tool.name}", who.id, "mcp", request=command) as outcome:
            outcome["reply"] = tool.call(command, who)
        return outcome["reply"]

    def _append(self, record: AuditRecord) -> AuditRecord | None:
        """Append the record; return None if the workspace is gone, with its records."""
        if self._read_only or not self.path.parent.is_dir():
            return None
        number = self._run(file.append, self.path, record)
        return record._replace(began=number) if record.began is None else record
