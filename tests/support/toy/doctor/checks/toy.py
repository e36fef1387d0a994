"""Notes: there is room for another one."""

from collections.abc import Iterator

from doctor.check import Check, Context, Finding, Severity


def _full(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("toy"):
        (count,) = connection.execute("SELECT count(*) FROM note").fetchone()
        if count >= 2:
            yield Finding(Severity.WARNING, "toy", f"there are {count} notes", "agentlip doctor")


CHECKS = (Check(name="toy.room", inspects="there is room for notes", find=_full),)
