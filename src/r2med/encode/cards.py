"""Cards of encoders: their fields and checks, the bundled and the user's, and those read from a model's own files.

What sentence-transformers wrote beside the weights (modules, pooling, prompts, similarity) becomes the card's fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.encode.late_cards import states_late
from r2med.errors import R2medError, SpecError
from r2med.models.cards import CardRegistry, Reader, is_text
from r2med.models.source import ModelSource
from r2med.models.templates import NO_PROMPT, Template

POOLING_MODES = {"cls": "cls", "mean": "mean", "last": "lasttoken", "max": "max", "weighted": "weightedmean"}
"""The poolings of dense encoders, and what sentence-transformers calls each."""
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def card_of(source: ModelSource, name: str, *, told: bool = False) -> EncoderCard:
    """Build the card of a folder or repository. If its files do not state the pooling, the spec must (`told`)."""
    if states_late(source):
        raise R2medError(f"{source.name} gives each token a vector, not a text one: write colbert({name})")
    stated = stated_modules(source)
    if not stated and source.read_json("config.json") is None:
        raise R2medError(_no_model(source))
    if not stated and not told:
        raise R2medError(f"{source.name} does not say how its token vectors are pooled: add pooling=mean, cls or last")
    if states_sparse(stated):
        return _sparse_card(source, name, stated)
    longest = source.max_length(str(stated.get("subfolder", "")))
    prompts = _prompts(source)
    return EncoderCard(name, source.name, source.revision, max_query=longest, max_document=longest, **stated, **prompts)


def sparse_card_of(source: ModelSource, name: str) -> EncoderCard:
    """Build the card of a learned sparse encoder; one without `modules.json` is a plain SPLADE."""
    stated = stated_modules(source)
    if not stated:
        config = source.read_json("config.json")
        if config is None:
            raise R2medError(_no_model(source))
        heads = [str(kind) for kind in config.get("architectures") or ()]
        if not any(kind.endswith("ForMaskedLM") for kind in heads):
            raise R2medError(f"{source.name} has no head over its vocabulary ({', '.join(heads) or 'none stated'})")
        stated = {"pooling": "splade", "subfolder": ""}
    if not states_sparse(stated):
        raise R2medError(f"{source.name} pools by {stated['pooling']}: a dense encoder, not a learned sparse one")
    return _sparse_card(source, name, stated)


def states_sparse(stated: Mapping[str, Any]) -> bool:
    """Return whether the modules of a model make its vectors sparse."""
    return stated.get("pooling") in SPARSE_POOLINGS or bool(stated.get("autoencoder"))


def _sparse_card(source: ModelSource, name: str, stated: dict[str, Any]) -> EncoderCard:
    longest = source.max_length(str(stated["subfolder"]))
    queries = stated.get("query_table") or stated.get("query_subfolder")
    query = source.max_length(str(queries)) if queries else longest
    kept = (source.read_json("config_sentence_transformers.json") or {}).get("max_active_dims") or 0
    if stated.get("autoencoder"):
        kept = kept or (source.read_json(f"{stated['autoencoder']}/config.json") or {}).get("k", 8)
    limits: dict[str, Any] = {"max_query": query, "max_document": longest, "max_terms": kept}
    return EncoderCard(name, source.name, source.revision, **limits, **stated, **_prompts(source, "dot"))


def stated_modules(source: ModelSource) -> dict[str, Any]:
    """Read `modules.json` as fields of a card; empty if there is none."""
    modules = source.read_json("modules.json")
    if not isinstance(modules, list):
        return {}
    if [_kind(module) for module in modules] == ["Router"]:
        return _routed(source, str(modules[0].get("path", "")).strip("/"))
    return _stated(source, modules)


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _routed(source: ModelSource, path: str) -> dict[str, Any]:
    """Read the modules of a model that routes queries and documents to separate ones."""
    under = f"{path}/" if path else ""
    config = source.read_json(f"{under}router_config.json") or {}
    routes, types = config.get("structure") or {}, config.get("types") or {}
    if "query" not in routes or "document" not in routes:
        raise R2medError(f"{source.name}: router_config.json has no modules for queries and documents")
    sides = {
        side: [{"type": types.get(name, ""), "path": f"{under}{name}"} for name in routes[side]]
        for side in ("query", "document")
    }
    found = _stated(source, sides["document"])
    if found["pooling"] not in SPARSE_POOLINGS:
        raise R2medError(f"{source.name} routes queries and documents of a dense model, which r2med cannot do")
    if [_kind(module) for module in sides["query"]] == ["SparseStaticEmbedding"]:
        return found | {"query_table": sides["query"][0]["path"]}
    query = _stated(source, sides["query"])
    if query["pooling"] != found["pooling"]:
        raise R2medError(f"{source.name} pools queries by {query['pooling']}, documents by {found['pooling']}")
    return found | {"query_subfolder": query["subfolder"]}


def _no_model(source: ModelSource) -> str:
    adapter = source.read_json("adapter_config.json")
    if adapter is not None:
        base = adapter.get("base_model_name_or_path", "ORG/BASE")
        return f"{source.name} is an adapter, not a model: write hf:{base}(adapter={source.name})"
    return f"{source.name}: not a model (no config.json)"


def _stated(source: ModelSource, modules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Read the modules of a sentence-transformers model as fields of a card."""
    found: dict[str, Any] = {"dense": ()}
    for module in modules:
        kind = _kind(module)
        path = str(module.get("path", "")).strip("/")
        match kind:
            case "Transformer" | "MLMTransformer":
                found["subfolder"] = path
            case "SpladePooling":
                found["pooling"] = _splade_pooling(source, path)
            case "Pooling":
                found |= _pooling(source, path)
            case "Dense":
                found["dense"] += (path,)
            case "Normalize" if "autoencoder" not in found:
                found["normalize"] = True
            case "SparseAutoEncoder":
                found["autoencoder"] = path
            case _:
                raise R2medError(f"{source.name} has a module {kind or module} that r2med cannot run")
    if "pooling" not in found or "subfolder" not in found:
        raise R2medError(f"{source.name}: modules.json lists no transformer with a pooling")
    return found


def _splade_pooling(source: ModelSource, path: str) -> str:
    config = source.read_json(f"{path}/config.json") or {}
    stated = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    for pooling, form in SPARSE_POOLINGS.items():
        if stated == form:
            return pooling
    raise R2medError(f"{source.name} pools by {' and '.join(map(str, stated))}, which r2med cannot do")


def _pooling(source: ModelSource, path: str) -> dict[str, Any]:
    config = source.read_json(f"{path}/config.json") or {}
    modes = config.get("pooling_mode") or [mode for key, mode in _OLD_MODES.items() if config.get(key)] or "mean"
    modes = [modes] if isinstance(modes, str) else list(modes)
    ours = {theirs: pooling for pooling, theirs in POOLING_MODES.items()}
    if len(modes) != 1 or modes[0] not in ours:
        raise R2medError(f"{source.name} pools by {' and '.join(map(str, modes))}, which r2med cannot do")
    return {"pooling": ours[modes[0]], "exclude_prompt": not config.get("include_prompt", True)}


def _prompts(source: ModelSource, compares: str = "cosine") -> dict[str, Any]:
    stated = source.read_json("config_sentence_transformers.json") or {}
    prompts = {name: text for name, text in (stated.get("prompts") or {}).items() if text is not None}
    default = prompts.get(stated.get("default_prompt_name") or "", "")
    document = next((prompts[each] for each in _DOCUMENT_PROMPTS if each in prompts), default)
    found: dict[str, Any] = {
        "query_prompt": Template(prompts.get("query", default), literal=True),
        "document_prompt": Template(document, literal=True),
    }
    similarity = stated.get("similarity_fn_name") or compares
    if similarity not in SIMILARITIES:
        raise R2medError(f"{source.name} compares by {similarity}: add similarity=cosine or similarity=dot")
    lower = (source.read_json("sentence_bert_config.json") or {}).get("do_lower_case", False)
    return found | {"similarity": similarity, "lowercase": bool(lower)}


BACKENDS = ("torch", "onnx", "static", "api")
SPARSE_POOLINGS: Mapping[str, tuple[str, str]] = {
    "splade": ("max", "relu"),
    "splade-sum": ("sum", "relu"),
    "splade-log": ("max", "log1p_relu"),
    "splade-log-sum": ("sum", "log1p_relu"),
}
"""The poolings of learned sparse encoders, and what sentence-transformers calls the two halves of each."""
POOLINGS = (*POOLING_MODES, "own", *SPARSE_POOLINGS)
SIMILARITIES = ("cosine", "dot")
DTYPES = ("float32", "bfloat16", "float16", "int8")
_GPU_MILLIONS = 3000  # from here on a model is out of reach of a processor in any useful time


@dataclass(frozen=True)
class EncoderCard:
    """A model and its settings. `cards.toml` says what each field means.

    >>> card("bge").pooling, card("bge").max_document
    ('cls', 512)
    """

    name: str
    id: str
    revision: str = "main"
    query_id: str = ""
    query_revision: str = "main"
    package: str = ""
    subfolder: str = ""
    query_subfolder: str = ""
    query_table: str = ""
    autoencoder: str = ""
    max_terms: int = 0
    backend: str = "torch"
    pooling: str = "mean"
    attention: str = ""
    normalize: bool = False
    max_query: int = 512
    max_document: int = 512
    query_prompt: Template = NO_PROMPT
    document_prompt: Template = NO_PROMPT
    exclude_prompt: bool = False
    prompt_passages: bool = False
    lowercase: bool = False
    pair: bool = False
    append_eos: bool = False
    padding: str = "right"
    dense: tuple[str, ...] = ()
    similarity: str = "cosine"
    dtype: str = "float32"
    remote_code: bool = False
    adapter: str = ""
    adapter_revision: str = "main"
    url: str = ""
    input_types: bool = False
    tokenizer: str = ""
    price: float | None = None
    parameters: float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        self._check("backend", BACKENDS)
        self._check("pooling", POOLINGS)
        self._check("attention", ("", "bidirectional"))
        self._check("padding", ("left", "right"))
        self._check("similarity", SIMILARITIES)
        self._check("dtype", DTYPES)
        if self.dtype == "int8" and self.backend != "onnx":
            raise SpecError(f"{self.name}: dtype=int8 needs backend=onnx")
        if self.sparse and self.backend != "torch":
            raise SpecError(f"{self.name}: a learned sparse encoder is run by torch, not {self.backend}")
        if self.pooling == "own" and not self.remote_code:
            raise SpecError(f"{self.name}: pooling=own runs code of the model's own, which needs remote_code=true")
        if self.pooling == "weighted" and self.exclude_prompt:
            raise SpecError(f"{self.name}: exclude_prompt and pooling=weighted do not go together")
        if min(self.max_query, self.max_document) < 0:
            raise SpecError(f"{self.name}: a max length of {min(self.max_query, self.max_document)} tokens")

    def _check(self, field: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in allowed:
            known = ", ".join(word for word in allowed if word)
            raise SpecError(f"{self.name}: {field} must be one of {known}, not {value!r}")

    @property
    def sparse(self) -> bool:
        """Return whether its vectors have thousands of dimensions, nearly all of them zero."""
        return self.pooling in SPARSE_POOLINGS or bool(self.autoencoder)

    @property
    def needs_gpu(self) -> bool:
        """Return whether encoding a task without an accelerator would take days."""
        return self.backend == "torch" and self.parameters >= _GPU_MILLIONS


def _is_wording(value: Any) -> bool:
    return is_text(value) or (isinstance(value, dict) and all(map(is_text, value.values())))


_WORDING = Reader("a text, or a table of texts by family", _is_wording, Template.of)
_DECK = CardRegistry(EncoderCard, "r2med.encode", "encoders.toml", readers={Template: _WORDING})


def card(name: str) -> EncoderCard:
    """Return the card of a name."""
    return _DECK.find(name)


def cards() -> Mapping[str, EncoderCard]:
    """Return every card by name: the bundled ones in their order, then the user's, which win over bundled ones."""
    return _DECK.cards()
