"""Work in a forked child, which may be killed in the middle of it."""

import os
import signal
import traceback
from collections.abc import Callable


def exit_code_of(work: Callable[[], object]) -> int:
    """The exit code of a child that works and ends without a cleanup: 1 after an exception, -9 if
    it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, work: Callable[[Callable[[], None]], object]) -> bool:
    """Whether a child was killed as `work(reach)` called `reach` for this time, from 1 on; else it
    came to its end."""

    def count_down() -> None:
        left = step

        def reach() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        work(reach)

    code = exit_code_of(count_down)
    assert code in (0, -signal.SIGKILL), code
    return code != 0
