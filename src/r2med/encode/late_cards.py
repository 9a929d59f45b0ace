"""Cards of late-interaction models: a vector for each token, and what decides which tokens those are.

Prefixes, lengths, the expansion of queries and the tokens that are skipped affect the results as much as the weights
do, and every family of checkpoints stores them in another place: sentence-transformers beside its modules, PyLate in
one file at the top, Stanford's ColBERT in `artifact.metadata`. Here they become one card.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.errors import R2medError, SpecError
from r2med.models.cards import CardRegistry
from r2med.models.source import ModelSource
from r2med.store.typed import convert

EXPANSIONS = ("off", "fixed", "min")
"""How a query is filled up with mask tokens: not at all, to exactly its length, or to at least that."""
SIMILARITIES = ("maxsim", "meanmaxsim")
"""The best matches of a query's tokens added up, or their mean."""
DTYPES = ("float32", "bfloat16", "float16")
PUNCTUATION = tuple(string.punctuation)
_CLASSIC = 32  # the length of an expanded query if a checkpoint states none
_STATED = "config_sentence_transformers.json"  # of the whole model, by sentence-transformers or PyLate
_STANFORD = "artifact.metadata"  # the settings of a Stanford checkpoint
_PYLATE_MARKS = (
    "query_length document_length query_expansion do_query_expansion attend_to_expansion_tokens attend_to_mask_tokens"
    " query_prefix document_prefix skiplist_words"
).split()
"""Settings by which a checkpoint of PyLate is known, whatever version wrote it."""


@dataclass(frozen=True)
class LateCard:
    """A late-interaction model and its settings. `cards.toml` says what each field means."""

    name: str
    id: str
    revision: str = "main"
    subfolder: str = ""
    dense: tuple[str, ...] = ()
    inline: bool = False
    query_prefix: str = ""
    document_prefix: str = ""
    query_length: int = 0
    document_length: int = 0
    expansion: str = ""
    attend: bool = False
    expansion_token: str = ""
    skiplist: tuple[str, ...] = ()
    skip_queries: bool = False
    normalize: bool = True
    lowercase: bool = False
    similarity: str = "maxsim"
    dtype: str = "float32"
    remote_code: bool = False
    dimension: int = 0
    parameters: int | float = 0
    licence: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        for field, allowed in (("expansion", EXPANSIONS), ("similarity", SIMILARITIES), ("dtype", DTYPES)):
            if (value := getattr(self, field)) and value not in allowed:
                raise SpecError(f"{self.name}: {field} must be one of {', '.join(allowed)}, not {value!r}")
        if (shortest := min(self.query_length, self.document_length)) < 0:
            raise SpecError(f"{self.name}: a length of {shortest} tokens")


_KIND, _WAYS = "late-interaction model", " (or hf:ORG/NAME, or a folder)"
_CARDS = CardRegistry(LateCard, "r2med.encode", "encoders.toml", table="late", what=_KIND, ways=_WAYS)
late_card, late_cards = _CARDS.find, _CARDS.cards


def card_from_files(source: ModelSource, name: str) -> LateCard:
    """Build the card of a checkpoint of any family from its own files; raise one line if their form is wrong."""
    try:
        modules = source.read_json("modules.json")
        if isinstance(modules, list):
            return _of_modules(source, name, modules)
        if _names_colbert(source) or source.small_file(_STANFORD):
            return _stanford(source, name)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise R2medError(f"{source.name}: its settings are not what such a checkpoint has ({error})") from error
    if not source.read_table("config.json"):
        raise R2medError(f"{source.name}: not a model (no config.json)")
    raise R2medError(
        f"{source.name} is not a late-interaction checkpoint: it has neither the modules of sentence-transformers"
        f" or PyLate nor Stanford's {_STANFORD}, so its projection would be random"
    )


def _names_colbert(source: ModelSource) -> bool:
    return "HF_ColBERT" in (source.read_table("config.json").get("architectures") or [])


def states_late(source: ModelSource) -> bool:
    """Return whether a model gives each token a vector, by the files that every model may have."""
    stated = source.read_table(_STATED)
    named = stated.get("model_type") in ("MultiVectorEncoder", "ColBERT")
    return named or any(mark in stated for mark in _PYLATE_MARKS) or _names_colbert(source)


def source_is_late(source: ModelSource) -> bool:
    """Return whether a model gives each token a vector, according to its small files."""
    return states_late(source) or source.small_file(_STANFORD) is not None


def _stanford(source: ModelSource, name: str) -> LateCard:
    """Build the card of a Stanford checkpoint: markers are tokens of the vocabulary, and a query is always expanded."""
    config = source.read_table(_STANFORD)
    markers = {role: config.get(f"{role}_token_id") for role in ("query", "doc")}
    for role, marker in markers.items():
        if marker is not None and not isinstance(marker, str):
            raise R2medError(f"{source.name}: {role}_token_id in {_STANFORD} is {marker!r}, not a token")
    return LateCard(
        name,
        source.name,
        source.revision,
        inline=True,
        query_prefix=f"{markers['query'] or '[unused0]'} ",
        document_prefix=f"{markers['doc'] or '[unused1]'} ",
        query_length=int(config.get("query_maxlen") or _CLASSIC),
        document_length=int(config.get("doc_maxlen") or source.max_length()),
        expansion="fixed",
        attend=bool(config.get("attend_to_mask_tokens")),
        skiplist=PUNCTUATION if config.get("mask_punctuation", True) else (),
    )


def _of_modules(source: ModelSource, name: str, modules: Sequence[Mapping[str, Any]]) -> LateCard:
    """Build the card of a checkpoint of sentence-transformers or PyLate, module by module."""
    stated = source.read_table(_STATED)
    pylate = any(mark in stated for mark in _PYLATE_MARKS)
    native = stated.get("model_type") == "MultiVectorEncoder"
    if not pylate and not native and stated.get("model_type") != "ColBERT":
        raise R2medError(
            f"{source.name} gives a text one vector, not one for each token: write its name alone, without colbert(...)"
        )
    card: dict[str, Any] = {"dense": (), "normalize": not native, "skiplist": () if native else PUNCTUATION}
    for module in modules:
        card |= _module(source, module, card["dense"])
    if "subfolder" not in card:
        raise R2medError(f"{source.name}: modules.json lists no transformer")
    card |= _lengths(source, card["subfolder"], stated, pylate=pylate)
    # The marker comes first, then the prompt, which may hold the marker already.
    prompts = stated.get("prompts") or {}
    for role, names in (("query", ("query",)), ("document", ("document", "passage", "corpus"))):
        prompt = next((prompts[name] for name in names if prompts.get(name)), "")
        marker = stated.get(f"{role}_prefix") or ""
        card[f"{role}_prefix"] = marker + prompt.removeprefix(marker)
    if stated.get("skiplist_words") is not None and not native:
        card["skiplist"] = tuple(stated["skiplist_words"])
    if stated.get("similarity_fn_name") in SIMILARITIES:
        card["similarity"] = stated["similarity_fn_name"]
    fields = {"name": name, "id": source.name, "revision": source.revision, **card}
    return convert(fields, LateCard, source.name, R2medError)


def _module(source: ModelSource, module: Mapping[str, Any], dense: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that a module adds to the card; raise for one that cannot be run, for none may be dropped."""
    kind = str(module.get("type", "")).rpartition(".")[2]
    path = str(module.get("path", "")).strip("/")
    config = source.read_table(f"{path}/config.json") if path else {}
    match kind:
        case "Transformer":
            return {"subfolder": path}
        case "Dense":
            for end in ("module_input_name", "module_output_name"):
                if config.get(end) not in (None, "token_embeddings"):
                    raise R2medError(f"{source.name}: {path} works on {config[end]}, not on the vectors of tokens")
            return {"dense": (*dense, path)}
        case "MultiVectorMask":
            if config.get("keep_only_token_ids"):
                raise R2medError(f"{source.name} keeps the vectors of images only, which r2med cannot do")
            tasks = config.get("skiplist_tasks") or ["document"]
            return {"skiplist": tuple(config.get("skiplist_words") or ()), "skip_queries": "query" in tasks}
        case "Normalize" if config.get("module_input_name", "token_embeddings") == "token_embeddings":
            return {"normalize": True}
    raise R2medError(f"{source.name} has a module {kind or module} that r2med cannot run, and will not leave out")


def _lengths(source: ModelSource, subfolder: str, stated: Mapping[str, Any], *, pylate: bool) -> dict[str, Any]:
    """Return the lengths and the expansion of queries, as sentence-transformers or PyLate states them."""
    of_module = source.read_table(f"{subfolder}/sentence_bert_config.json".removeprefix("/"))
    settings = dict(stated) if pylate else {}
    settings |= {name: value for name, value in of_module.items() if name != "max_seq_length" and value is not None}
    longest = source.max_length(subfolder)
    expansion = settings.get("query_expansion")
    if pylate and "query_expansion" not in settings and settings.get("do_query_expansion") is not False:
        attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
        expansion = {"strategy": "fixed", "attend": attend, "length": settings.get("query_length") or _CLASSIC}
    lower = bool(settings.get("do_lower_case"))
    lengths = {"document_length": settings.get("document_length") or longest, "lowercase": lower}
    if not expansion:
        return lengths | {"query_length": settings.get("query_length") or longest, "expansion": "off"}
    if expansion.get("strategy") == "min" and settings.get("query_length"):
        raise R2medError(f"{source.name}: a query_length beside an expansion of at least so many tokens is not known")
    return lengths | {
        "expansion": expansion["strategy"],
        "query_length": expansion["length"],
        "attend": bool(expansion.get("attend")),
        "expansion_token": expansion.get("token") or "",
    }
