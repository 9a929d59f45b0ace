"""What work, and a system on a task, can be."""

from __future__ import annotations

WAITING, RUNNING, DONE, KEPT, FAILED, POSTPONED = "waiting", "running", "done", "kept", "failed", "postponed"
"""What a system on a task can be; `kept` was in the ledger already."""
FINISHED, STOPPED, BROKEN = "finished", "stopped", "failed"
"""How work can end."""
