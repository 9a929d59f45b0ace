"""Work in portions: items gathered until they are large enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def by_size(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Lists of successive items, each as long as it takes to reach a total size.

    >>> list(by_size(["a", "bbb", "cc", "d"], len, 3))
    [['a', 'bbb'], ['cc', 'd']]
    """
    portion: list[Item] = []
    total = 0
    for item in items:
        portion.append(item)
        total += size(item)
        if total >= limit:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion
