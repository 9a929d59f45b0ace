"""From token vectors to one vector a text: each pooling a small function of the hidden states and a mask.

The functions are traced when a model is exported, so they hold no branch on a tensor's content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """The vector of the first token that counts, on whichever side the padding is."""
    return _take(hidden, mask.to(hidden.dtype).argmax(dim=1))


def last_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """The vector of the last token that counts."""
    width = mask.shape[1]
    return _take(hidden, width - 1 - mask.flip(1).to(hidden.dtype).argmax(dim=1))


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens that count."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    """The largest value of each dimension over the tokens that count."""
    return hidden.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(dim=1)


def weighted_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean with weights that grow with the token's position among those that count: 1, 2, 3, ..."""
    positions = mask.cumsum(dim=1) * mask
    weights = positions.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _take(hidden: Tensor, places: Tensor) -> Tensor:
    """Of each row the vector at its place."""
    index = places.reshape(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
    return hidden.gather(1, index).squeeze(1)


FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": first_token,
    "last": last_token,
    "mean": mean,
    "max": maximum,
    "weighted": weighted_mean,
}
"""The poolings by the names that cards and specs use."""
