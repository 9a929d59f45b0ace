"""A user's own encoder: a class with two methods, named in a spec as `my.module:MyEncoder`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.encode.encoder_cards import SIMILARITIES
from r2med.errors import R2medError, SpecError, blame
from r2med.models.user_class import check_arguments, class_version, construct, import_class, parameters

if TYPE_CHECKING:
    from r2med.data.tasks import Task

_CHARACTERS = 4  # of English text in a token, about: only batch sizes depend on it


class TwoMethods(Protocol):
    """What a user's class must have. `docs/own-models.md` shows a whole one.

    It may also have `similarity` ("cosine" or "dot"), `version` (a text that changes when its vectors do),
    `batch_tokens` (how much text to hand over at a time), and a constructor that takes `task`.
    """

    def encode_queries(self, texts: list[str]) -> Any:
        """A vector for each query, as anything that numpy makes an array of."""

    def encode_documents(self, texts: list[str]) -> Any:
        """A vector for each document."""


class OwnEncoder(Encoder):
    """A user's class at work."""

    def __init__(self, address: str, options: Mapping[str, Any], task: Task, made: TwoMethods | None = None) -> None:
        self.address = address
        self.options = dict(options)
        if made is not None:
            self.kind, self._task, self.made = type(made), None, made
            return
        self.kind = find_class(address)
        self._task = task if "task" in parameters(self.kind) else None
        check_arguments(address, self.kind, self.options)

    @cached_property
    def made(self) -> TwoMethods:
        """The user's object, constructed when it is first needed."""
        given = {**self.options, "task": self._task} if self._task else self.options
        made: TwoMethods = construct(self.address, self.kind, given)
        _check_methods(self.address, made)
        return made

    def settings(self, role: Role) -> Mapping[str, object]:
        """The class, its options, and its version: the one it states, or else a hash of the file it is in."""
        words = {} if self._task is None else {"task": f"{self._task.name}: {self._task.sentence}"}
        options = {name: repr(value) for name, value in sorted(self.options.items())}
        return {
            "model": self.address,
            "revision": class_version(self.kind),
            "role": role.value,
            "options": options,
            **words,
        }

    @property
    def similarity(self) -> str:
        """As the class says; cosine when it does not."""
        stated = str(getattr(self.kind, "similarity", "cosine"))
        if stated not in SIMILARITIES:
            raise R2medError(f"{self.address}: similarity must be cosine or dot, not {stated!r}")
        return stated

    def load(self) -> None:
        """Construct the user's object."""
        _ = self.made

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """About how many tokens each text has."""
        return np.array([len(text) // _CHARACTERS + 1 for text in texts], dtype=np.int64)

    def limit(self, role: Role) -> int:
        """None: what the class cuts off is its own business."""
        return 0

    @property
    def batch_tokens(self) -> int:
        """As the class says."""
        return int(getattr(self.kind, "batch_tokens", super().batch_tokens))

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """One batch, through the method of its role."""
        method = self.made.encode_queries if role is Role.QUERY else self.made.encode_documents
        try:
            vectors = method(list(texts))
        except R2medError:
            raise
        except Exception as error:  # whatever a user's code may raise is the user's to see, as one line
            raise R2medError(f"{self.address}: {method.__name__} failed: {blame(error)}") from error
        try:
            return np.ascontiguousarray(np.asarray(vectors, dtype=np.float32))
        except (TypeError, ValueError) as error:
            raise R2medError(f"{self.address}: {method.__name__} did not give an array of numbers ({error})") from error


def address_of(made: object) -> str:
    """What an object's class is named by in a spec; a `SpecError` for what is no encoder."""
    if inspect.isclass(made):
        raise SpecError(f"{made.__name__} is a class; give an object of it, as {made.__name__}()")
    kind = type(made)
    address = f"{kind.__module__}:{kind.__name__}"
    _check_methods(address, made)
    return address


def state_of(made: Any) -> dict[str, Any]:
    """What the vectors of an object depend on beside its class: its `version`, or else all that it holds.

    >>> from types import SimpleNamespace
    >>> state_of(SimpleNamespace(columns=64)), state_of(SimpleNamespace(version="2", model=object()))
    ({'columns': 64}, {'version': '2'})
    """
    if stated := getattr(made, "version", ""):
        return {"version": str(stated)}
    state = getattr(made, "__dict__", None)
    address = f"{type(made).__module__}:{type(made).__name__}"
    if state is None:
        raise SpecError(f"{address} does not show what it holds; {_VERSION}")
    for name, value in state.items():
        if not _is_plain(value):
            raise SpecError(f"{address} holds {name}, a {type(value).__name__} that no key can be made of; {_VERSION}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in state.items()}


_VERSION = "give it a version, a text that changes when its vectors do"


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)


def find_class(address: str) -> Any:
    """The encoder class of `module:Class`."""
    found = import_class(address)
    if inspect.isclass(found):
        _check_methods(address, found)
    return found


def _check_methods(address: str, found: Any) -> None:
    for method in ("encode_queries", "encode_documents"):
        if not callable(getattr(found, method, None)):
            wanted = "an encoder has encode_queries and encode_documents, a search engine search(queries, k)"
            raise SpecError(f"{address} has no method {method}; {wanted}")
