"""Declares which findings explain others. A module with checks declares its causes as CAUSES."""

from fnmatch import fnmatchcase

import msgspec

from appliance.checks.check import Finding


class Cause(msgspec.Struct, frozen=True):
    """A cause that explains findings. `name` and `explains` are `check:problem`, in which `*`
    stands for any text.

    same_subject  the finding must be about the same store or secret, or about a table in that store
    first         only the first such finding explains others

    Damage that was read from a file is never explained: no cause excuses damage.
    """

    name: str
    explains: tuple[str, ...]
    same_subject: bool = False
    first: bool = False

    def applies(self, cause: Finding, finding: Finding) -> bool:
        """Return whether `cause`, from another check, explains `finding`."""
        if cause.check == finding.check or not fnmatchcase(cause.name, self.name):
            return False
        if not any(fnmatchcase(finding.name, pattern) for pattern in self.explains):
            return False
        same = cause.subject in (finding.subject, finding.subject.partition(".")[0])
        return same or not self.same_subject
