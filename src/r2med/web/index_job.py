"""The process that makes the index of a light system: `python -m r2med.web.index_job TASK SYSTEM PAGE`."""

from __future__ import annotations

import signal
import sys

from r2med.errors import R2medError, one_line
from r2med.storage.progress import account
from r2med.storage.work_states import DONE
from r2med.web.library import at_hand
from r2med.web.search_page import build


def main(task: str, system: str, page: str) -> int:
    """Build an index, and tell others; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with account.command(f"Index of {system} for {task}", page), account.plan([system], [task]):
            dataset = at_hand(task)
            if dataset is None:
                raise R2medError(f"the data of {task} is not on this machine")
            with account.working(system, task):
                build(system, dataset)
            account.finish(system, task, DONE)
    except KeyboardInterrupt:
        return 130
    except (R2medError, MemoryError, OSError) as error:
        sys.stderr.write(f"r2med: {one_line(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
