"""What can go wrong with a release: a code, what happened, what helps, and an exit code."""

USAGE, NOT_READY, FAILED = 2, 3, 4


class ReleaseError(Exception):
    """`exit_code` is one of the numbers above."""

    def __init__(self, code: str, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.exit_code = code, message, hint, exit_code
