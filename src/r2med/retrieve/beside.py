"""A call beside others, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Beside(Generic[Value]):
    """A call that has begun.

    The executors of the standard library import more than a small collection takes to index.

    >>> Beside(lambda: 6 * 7).result()
    42
    """

    def __init__(self, call: Callable[[], Value]) -> None:
        self._call = call
        self._value: list[Value] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except BaseException as error:
            self._error = error

    def result(self) -> Value:
        """What the call gives, or raises, once it has."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]
