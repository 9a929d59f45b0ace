"""What work, and a system on a task, can be."""

from __future__ import annotations

WAITING, RUNNING, DONE, KEPT, FAILED, POSTPONED = "waiting", "running", "done", "kept", "failed", "postponed"
"""What a system on a task can be; `kept` was in the ledger already."""
FINISHED, STOPPED, BROKEN, KILLED = "finished", "stopped", "failed", "ended unexpectedly"
"""How work can end; `KILLED` is that of a process which is gone without having ended its work."""
