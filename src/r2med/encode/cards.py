"""Cards of encoders: their fields and checks, the bundled and the user's, and those read from a model's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.data.tasks import Task
from r2med.encode.encoder import Prompts
from r2med.encode.late_cards import states_late
from r2med.errors import R2medError, SpecError
from r2med.models.cards import CardRegistry
from r2med.models.source import ModelSource
from r2med.models.templates import NO_PROMPT, Template

POOLING_MODES = {"cls": "cls", "mean": "mean", "last": "lasttoken", "max": "max", "weighted": "weightedmean"}
"""The poolings of dense encoders, and what sentence-transformers calls each."""
SPARSE_POOLINGS: Mapping[str, tuple[str, str]] = {
    "splade": ("max", "relu"),
    "splade-sum": ("sum", "relu"),
    "splade-log": ("max", "log1p_relu"),
    "splade-log-sum": ("sum", "log1p_relu"),
}
"""The poolings of learned sparse encoders, and what sentence-transformers calls the two halves of each."""
POOLINGS = (*POOLING_MODES, "own", *SPARSE_POOLINGS)
BACKENDS = ("torch", "onnx", "static", "api")
SIMILARITIES = ("cosine", "dot")
DTYPES = ("float32", "bfloat16", "float16", "int8")
SHORT_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
GPU_MILLIONS = 3000
"""From so many parameters on a model is out of reach of a processor in any useful time."""
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}


@dataclass(frozen=True)
class EncoderCard:
    """A model and its settings. `cards.toml` says what each field means."""

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
    parameters: int | float = 0
    licence: str = ""
    gated: bool = False
    notes: str = ""
    published: str = ""

    def __post_init__(self) -> None:
        choices = {
            "backend": BACKENDS,
            "pooling": POOLINGS,
            "attention": ("", "bidirectional"),
            "padding": ("left", "right"),
            "similarity": SIMILARITIES,
            "dtype": DTYPES,
        }
        for field, allowed in choices.items():
            if (value := getattr(self, field)) not in allowed:
                words = ", ".join(filter(None, allowed))
                raise SpecError(f"{self.name}: {field} must be one of {words}, not {value!r}")
        if self.dtype == "int8" and self.backend != "onnx":
            raise SpecError(f"{self.name}: dtype=int8 needs backend=onnx")
        if self.sparse and self.backend != "torch":
            raise SpecError(f"{self.name}: a learned sparse encoder is run by torch, not {self.backend}")
        if self.pooling == "own" and not self.remote_code:
            raise SpecError(f"{self.name}: pooling=own runs code of the model's own, which needs remote_code=true")
        if self.pooling == "weighted" and self.exclude_prompt:
            raise SpecError(f"{self.name}: exclude_prompt and pooling=weighted do not go together")
        if (shortest := min(self.max_query, self.max_document)) < 0:
            raise SpecError(f"{self.name}: a max length of {shortest} tokens")

    @property
    def sparse(self) -> bool:
        """Return whether its vectors have thousands of dimensions, nearly all of them zero."""
        return self.pooling in SPARSE_POOLINGS or bool(self.autoencoder)

    def prompts(self, task: Task) -> Prompts:
        """Return the prompts for a task."""
        return Prompts(self.query_prompt.render(task), self.document_prompt.render(task))

    @property
    def needs_gpu(self) -> bool:
        """Return whether encoding a task without an accelerator would take days."""
        return self.backend == "torch" and self.parameters >= GPU_MILLIONS


_CARDS = CardRegistry(EncoderCard, "r2med.encode", "encoders.toml", prompts=dict[str, str | dict[str, str]])
card, cards = _CARDS.find, _CARDS.cards


def card_of(source: ModelSource, name: str, *, pooling_given: bool = False) -> EncoderCard:
    """Build the card of a folder or repository. If its files do not state the pooling, the spec must."""
    if states_late(source):
        raise R2medError(f"{source.name} gives each token a vector, not a text one: write colbert({name})")
    modules = read_modules(source)
    if not modules:
        _require_model(source)
    if not (modules or pooling_given):
        raise R2medError(f"{source.name} does not say how its token vectors are pooled: add pooling=mean, cls or last")
    return _card_of_modules(source, name, modules)


def sparse_card_of(source: ModelSource, name: str) -> EncoderCard:
    """Build the card of a learned sparse encoder; one without `modules.json` is a plain SPLADE."""
    modules = read_modules(source)
    if not modules:
        architectures = [str(kind) for kind in _require_model(source).get("architectures") or ()]
        if not any(kind.endswith("ForMaskedLM") for kind in architectures):
            stated = ", ".join(architectures) or "none stated"
            raise R2medError(f"{source.name} has no head over its vocabulary ({stated})")
        modules = {"pooling": "splade", "subfolder": ""}
    if not are_sparse(modules):
        raise R2medError(f"{source.name} pools by {modules['pooling']}: a dense encoder, not a learned sparse one")
    return _card_of_modules(source, name, modules)


def are_sparse(modules: Mapping[str, Any]) -> bool:
    """Return whether the modules of a model make its vectors sparse."""
    return modules.get("pooling") in SPARSE_POOLINGS or bool(modules.get("autoencoder"))


def _card_of_modules(source: ModelSource, name: str, modules: Mapping[str, Any]) -> EncoderCard:
    longest = source.max_length(modules.get("subfolder", ""))
    queries = modules.get("query_table") or modules.get("query_subfolder")
    values = {**modules, "max_query": source.max_length(queries) if queries else longest, "max_document": longest}
    if are_sparse(modules):
        stated = source.read_table("config_sentence_transformers.json").get("max_active_dims")
        folder = modules.get("autoencoder")
        usual = source.read_table(f"{folder}/config.json").get("k", 8) if folder else 0
        values["max_terms"] = stated or usual
    prompts = _read_prompts(source, "dot" if are_sparse(modules) else "cosine")
    return EncoderCard(name, source.name, source.revision, **values, **prompts)


def _require_model(source: ModelSource) -> dict[str, Any]:
    """Return `config.json`, or raise what the files are instead of a model."""
    config: dict[str, Any] | None = source.read_json("config.json")
    if config is not None:
        return config
    if (adapter := source.read_json("adapter_config.json")) is not None:
        base = adapter.get("base_model_name_or_path", "ORG/BASE")
        raise R2medError(f"{source.name} is an adapter, not a model: write hf:{base}(adapter={source.name})")
    raise R2medError(f"{source.name}: not a model (no config.json)")


def read_modules(source: ModelSource) -> dict[str, Any]:
    """Read `modules.json` as fields of a card; empty if there is none."""
    modules = source.read_json("modules.json")
    if not isinstance(modules, list):
        return {}
    if [_kind(module) for module in modules] != ["Router"]:
        return _read_fields(source, modules)
    # Queries and documents have modules of their own.
    path = str(modules[0].get("path", "")).strip("/")
    under = f"{path}/" if path else ""
    config = source.read_table(f"{under}router_config.json")
    routes, types = config.get("structure") or {}, config.get("types") or {}
    if "query" not in routes or "document" not in routes:
        raise R2medError(f"{source.name}: router_config.json has no modules for queries and documents")
    queries, documents = (
        [{"type": types.get(name, ""), "path": f"{under}{name}"} for name in routes[side]]
        for side in ("query", "document")
    )
    fields = _read_fields(source, documents)
    if fields["pooling"] not in SPARSE_POOLINGS:
        raise R2medError(f"{source.name} routes queries and documents of a dense model, which r2med cannot do")
    if [_kind(module) for module in queries] == ["SparseStaticEmbedding"]:
        return fields | {"query_table": queries[0]["path"]}
    query = _read_fields(source, queries)
    if query["pooling"] != fields["pooling"]:
        raise R2medError(f"{source.name} pools queries by {query['pooling']}, documents by {fields['pooling']}")
    return fields | {"query_subfolder": query["subfolder"]}


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _read_fields(source: ModelSource, modules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {"dense": ()}
    for module in modules:
        kind, path = _kind(module), str(module.get("path", "")).strip("/")
        config = source.read_table(f"{path}/config.json") if kind.endswith("Pooling") else {}
        match kind:
            case "Transformer" | "MLMTransformer":
                fields["subfolder"] = path
            case "SpladePooling":
                form = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
                fields["pooling"] = _our_pooling(source, SPARSE_POOLINGS, form, form)
            case "Pooling":
                modes = config.get("pooling_mode") or [mode for key, mode in _OLD_MODES.items() if config.get(key)]
                modes = [modes or "mean"] if isinstance(modes or "mean", str) else modes
                fields["pooling"] = _our_pooling(source, POOLING_MODES, modes[0] if len(modes) == 1 else None, modes)
                fields["exclude_prompt"] = not config.get("include_prompt", True)
            case "Dense":
                fields["dense"] += (path,)
            case "Normalize" if "autoencoder" not in fields:
                fields["normalize"] = True
            case "SparseAutoEncoder":
                fields["autoencoder"] = path
            case _:
                raise R2medError(f"{source.name} has a module {kind or module} that r2med cannot run")
    if "pooling" not in fields or "subfolder" not in fields:
        raise R2medError(f"{source.name}: modules.json lists no transformer with a pooling")
    return fields


def _our_pooling(source: ModelSource, poolings: Mapping[str, object], theirs: object, words: Sequence[object]) -> str:
    if theirs in poolings.values():
        return next(pooling for pooling, name in poolings.items() if name == theirs)
    raise R2medError(f"{source.name} pools by {' and '.join(map(str, words))}, which r2med cannot do")


def _read_prompts(source: ModelSource, usual_similarity: str = "cosine") -> dict[str, Any]:
    """Read the fields of a card that sentence-transformers states for the whole model."""
    stated = source.read_table("config_sentence_transformers.json")
    prompts = {name: text for name, text in (stated.get("prompts") or {}).items() if text is not None}
    default = prompts.get(stated.get("default_prompt_name") or "", "")
    document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
    similarity = stated.get("similarity_fn_name") or usual_similarity
    if similarity not in SIMILARITIES:
        raise R2medError(f"{source.name} compares by {similarity}: add similarity=cosine or similarity=dot")
    return {
        "query_prompt": Template(prompts.get("query", default), literal=True),
        "document_prompt": Template(document, literal=True),
        "similarity": similarity,
        "lowercase": bool(source.read_table("sentence_bert_config.json").get("do_lower_case", False)),
    }
