"""A user's own encoder: a class named in a spec as `my.module:MyEncoder`, with a method for each role.

It may also have `similarity` ("cosine" or "dot"), `version` (a text that changes when its vectors do), `batch_tokens`
(how much text to hand over at a time), and a constructor that takes `task`. `docs/reference/encoders.md` has one.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.encode.cards import SIMILARITIES
from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.errors import R2medError, SpecError, blame
from r2med.pipeline.user_code import check_arguments, class_content, class_version, construct, import_class, parameters
from r2med.store.processes import foreign_output

if TYPE_CHECKING:
    from r2med.data.tasks import Task

_CHARACTERS = 4  # of English text in a token, about: only batch sizes depend on it
_VERSION = "give it a version, a text that changes when its vectors do"


class TwoMethods(Protocol):
    """A class with a method for each role; `_METHODS` has the other names that are accepted."""

    def encode_queries(self, texts: list[str]) -> Any:
        """Return a vector for each query, as anything that numpy makes an array of."""

    def encode_documents(self, texts: list[str]) -> Any:
        """Return a vector for each document."""


_METHODS: Mapping[Role, tuple[str, ...]] = {
    Role.QUERY: ("encode_queries", "encode_query", "encode"),
    Role.DOCUMENT: ("encode_documents", "encode_corpus", "encode_document", "encode"),
}
"""What the method of a role may be called, the first that a class has counts: r2med's own names, then those of the
benchmark's code, BEIR, MTEB and sentence-transformers. `encode_corpus` is handed rows with a title and a text."""


class OwnEncoder(Encoder):
    """An encoder that runs a user's class."""

    def __init__(self, address: str, options: Mapping[str, Any], task: Task, made: Any = None) -> None:
        self.address, self.options, self.task = address, dict(options), task
        self._takes_task = False
        if made is not None:
            self.kind, self.made = type(made), made
        else:
            self.kind = find_class(address)
            self._takes_task = "task" in parameters(self.kind)
            check_arguments(address, self.kind, self.options)
        stated = getattr(self.kind, "similarity", "cosine")
        if isinstance(stated, str) and stated not in SIMILARITIES:
            raise R2medError(f"{address}: similarity must be cosine or dot, not {stated!r}")
        self.similarity = stated if isinstance(stated, str) else "cosine"

    @cached_property
    def made(self) -> Any:
        """Return the user's object, constructed when it is first needed."""
        encoder = construct(self.address, self.kind, self.options | ({"task": self.task} if self._takes_task else {}))
        _check_methods(self.address, encoder)
        return encoder

    def settings(self, role: Role) -> Mapping[str, object]:
        """Return the class, its options, and its version: the stated one, or else a hash of its file."""
        return {
            "model": self.address,
            "revision": class_version(self.kind),
            "role": role.value,
            "options": {name: repr(value) for name, value in sorted(self.options.items())},
            **({"task": f"{self.task.name}: {self.task.sentence}"} if self._takes_task else {}),
        }

    def local_content(self) -> dict[str, str]:
        """Return the file of the class."""
        return class_content(self.address, self.kind)

    def load(self) -> None:
        """Construct the user's object."""
        _ = self.made

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Estimate the number of tokens of each text."""
        return np.array([len(text) // _CHARACTERS + 1 for text in texts], dtype=np.int64)

    def limit(self, role: Role) -> int:
        """Return 0: the class itself decides where it cuts a text."""
        return 0

    @property
    def batch_tokens(self) -> int:
        """Return the class's own value, or the default."""
        return int(getattr(self.kind, "batch_tokens", super().batch_tokens))

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Encode one batch, through the method of its role."""
        method = _method(self.made, role)
        assert method is not None  # checked when the class was named
        try:
            with foreign_output.apart():
                vectors = _call(method, list(texts), role, self.task)
        except R2medError:
            raise
        except Exception as error:  # whatever a user's code may raise is the user's to see, as one line
            raise R2medError(f"{self.address}: {method.__name__} failed: {blame(error)}") from error
        try:
            if hasattr(vectors, "detach"):  # a tensor of any device and precision
                vectors = vectors.detach().float().cpu()
            return np.ascontiguousarray(np.asarray(vectors, dtype=np.float32))
        except (TypeError, ValueError) as error:
            raise R2medError(f"{self.address}: {method.__name__} did not give an array of numbers ({error})") from error


def _method(made: Any, role: Role) -> Callable[..., Any] | None:
    if isinstance(made, str):  # a text has a method `encode`, too
        return None
    candidates = (getattr(made, name, None) for name in _METHODS[role])
    return next((method for method in candidates if callable(method)), None)


def _call(method: Callable[..., Any], texts: list[str], role: Role, task: Task) -> Any:
    takes = inspect.signature(method).parameters
    if "task_metadata" in takes:
        import mteb

        # Data that MTEB does not know pass as a task of its kind.
        metadata = mteb.get_task("R2MEDBiologyRetrieval").metadata
        name = f"R2MED{task.base.replace('-', '')}Retrieval"
        return method(
            [{"text": texts}],
            task_metadata=metadata.model_copy(update={"name": name}),
            hf_split="test",
            hf_subset="default",
            prompt_type=_prompt_type(role),
        )
    required = {name for name, parameter in takes.items() if parameter.default is parameter.empty}
    usual = {"batch_size": len(texts), "task_name": task.name}
    arguments: dict[str, Any] = {name: value for name, value in usual.items() if name in required}
    if "prompt_type" in takes:
        arguments["prompt_type"] = _prompt_type(role)
    rows = [{"title": "", "text": text} for text in texts] if method.__name__ == "encode_corpus" else texts
    return method(rows, **arguments)


def _prompt_type(role: Role) -> Any:
    """Return MTEB's word for a role; a plain text if MTEB is not installed."""
    if importlib.util.find_spec("mteb") is None:
        return role.value
    from mteb.types import PromptType

    return PromptType(role.value)


def address_of(made: object) -> str:
    """Return the name of an object's class in a spec; raise a `SpecError` if it is not an encoder."""
    if inspect.isclass(made):
        raise SpecError(f"{made.__name__} is a class; give an object of it, as {made.__name__}()")
    address = f"{type(made).__module__}:{type(made).__name__}"
    _check_methods(address, made)
    return address


def state_of(made: Any) -> dict[str, Any]:
    """Return what the vectors of an object depend on besides its class: its `version`, or else all its attributes.

    >>> from types import SimpleNamespace
    >>> state_of(SimpleNamespace(columns=64)), state_of(SimpleNamespace(version="2", model=object()))
    ({'columns': 64}, {'version': '2'})
    """
    if stated := getattr(made, "version", ""):
        return {"version": str(stated)}
    state, address = getattr(made, "__dict__", None), f"{type(made).__module__}:{type(made).__name__}"
    if state is None:
        raise SpecError(f"{address} does not show what it holds; {_VERSION}")
    for name, value in state.items():
        if not _is_plain(value):
            raise SpecError(f"{address} holds {name}, a {type(value).__name__} that no key can be made of; {_VERSION}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in state.items()}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | None)


def find_class(address: str) -> Any:
    """Import the encoder class of `module:Class`."""
    kind = import_class(address)
    if inspect.isclass(kind):
        _check_methods(address, kind)
    return kind


def _check_methods(address: str, encoder: Any) -> None:
    for role, names in _METHODS.items():
        if _method(encoder, role) is None:
            expected = "an encoder has encode_queries and encode_documents, a search engine search(queries, k)"
            raise SpecError(f"{address} has no method {names[0]}; {expected}")
