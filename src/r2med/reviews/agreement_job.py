"""A separate process that computes the agreement of a review for its page, once per state of the file.

Computing takes seconds of a processor; in the server it would hold up every desk. `python -m
r2med.reviews.agreement_job` is the process: it reads the name of a review and writes the sections of the page.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from r2med.errors import R2medError
from r2med.formatting import one_line
from r2med.render.table import plain
from r2med.reviews.agreement import review_agreement
from r2med.reviews.store import ReviewStore
from r2med.reviews.tables import BREAKDOWNS, agreement_sections
from r2med.store.processes import ChildProcess, caller_pipes
from r2med.store.typed import json_bytes


@dataclass(frozen=True)
class ComputedAgreement:
    """Sections of the page, or the reason why they cannot be computed."""

    state: int  # `ReviewStore.state` when it was begun
    sections: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    error: str = ""


class AgreementJobs:
    """Computation of agreements, one at a time; the last result of each review is cached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._computed: WeakKeyDictionary[ReviewStore, ComputedAgreement] = WeakKeyDictionary()
        self._running: set[ReviewStore] = set()
        self._child: ChildProcess | None = None
        self._closed = False

    def get(self, store: ReviewStore, state: int) -> ComputedAgreement | None:
        """Return the agreement of a review at this state or a later one; None while it is being computed.

        An error is returned once: the next call computes again.
        """
        with self._lock:
            computed = self._computed.get(store)
            if computed is not None and computed.state >= state:
                if computed.error:
                    del self._computed[store]
                return computed
            if store not in self._running and not self._closed:
                self._running.add(store)
                threading.Thread(target=self._compute, args=(store, state), daemon=True).start()
        return None

    def close(self) -> None:
        """Stop computing, and end the process."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def _compute(self, store: ReviewStore, state: int) -> None:
        with self._turn:
            computed = self._ask(store.project.name, state)
        with self._lock:
            self._running.discard(store)
            self._computed[store] = computed

    def _ask(self, name: str, state: int) -> ComputedAgreement:
        with self._lock:
            if self._closed:
                return ComputedAgreement(state, error="the server is being stopped")
            child = self._child = ChildProcess("r2med.reviews.agreement_job")
        try:
            child.send(name.encode())
            computed = msgspec.json.decode(child.receive(), type=ComputedAgreement)
            return replace(computed, state=state) if computed.error else computed
        except (EOFError, OSError):
            return ComputedAgreement(state, error="the process that computes the agreement ended; load the page again")
        finally:
            with self._lock:
                self._child = None
            child.close()


def main() -> int:
    """Answer one request and return the exit code."""
    pipes = caller_pipes()
    os.nice(10)  # the desks go first if processors are few
    try:
        with ReviewStore.open(pipes.receive().decode()) as store:
            state = store.state()
            agreement = review_agreement(store)
        parts = agreement_sections(agreement, BREAKDOWNS)
        sections = [{**vars(part), "rows": [list(map(plain, row)) for row in part.rows]} for part in parts]
        computed = ComputedAgreement(state, sections, agreement.notes)
    except (R2medError, MemoryError, OSError) as error:
        computed = ComputedAgreement(0, error=one_line(error))
    pipes.send(json_bytes(computed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
