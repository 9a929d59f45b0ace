"""A card from a model's own files: what sentence-transformers wrote beside the weights says how the model is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from r2med.encode.cards import SIMILARITIES, Card
from r2med.encode.prompts import Template
from r2med.encode.sources import Source
from r2med.errors import R2medError

_MODES = {"cls": "cls", "mean": "mean", "lasttoken": "last", "max": "max", "weightedmean": "weighted"}
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_LONGEST = 8192  # what is read of a text when nothing but a context window of many thousands is stated


def card_of(source: Source, name: str, *, told: bool = False) -> Card:
    """The card of a folder or repository. One that does not say how it pools must be `told` by the spec."""
    modules = read_json(source, "modules.json")
    stated = _stated(source, modules) if isinstance(modules, list) else {}
    if not stated and read_json(source, "config.json") is None:
        raise R2medError(_no_model(source))
    if not stated and not told:
        raise R2medError(f"{source.name} does not say how its token vectors are pooled: add pooling=mean, cls or last")
    longest = max_length(source, str(stated.get("subfolder", "")))
    prompts = _prompts(source)
    return Card(name, source.name, source.revision, max_query=longest, max_document=longest, **stated, **prompts)


def _no_model(source: Source) -> str:
    adapter = read_json(source, "adapter_config.json")
    if adapter is not None:
        base = adapter.get("base_model_name_or_path", "ORG/BASE")
        return f"{source.name} is an adapter, not a model: write hf:{base}(adapter={source.name})"
    return f"{source.name}: not a model (no config.json)"


def read_json(source: Source, name: str) -> Any:
    """A JSON file of the model, or None when it has none."""
    file = source.small_file(name)
    if file is None:
        return None
    try:
        return orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError as error:
        raise R2medError(f"{file}: not JSON ({error})") from error


def _stated(source: Source, modules: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What the modules of a sentence-transformers model say, as fields of a card."""
    found: dict[str, Any] = {"dense": ()}
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        path = str(module.get("path", "")).strip("/")
        match kind:
            case "Transformer":
                found["subfolder"] = path
            case "Pooling":
                found |= _pooling(source, path)
            case "Dense":
                found["dense"] += (path,)
            case "Normalize":
                found["normalize"] = True
            case _:
                raise R2medError(f"{source.name} has a module {kind or module} that r2med cannot run")
    if "pooling" not in found or "subfolder" not in found:
        raise R2medError(f"{source.name}: modules.json lists no transformer with a pooling")
    return found


def _pooling(source: Source, path: str) -> dict[str, Any]:
    config = read_json(source, f"{path}/config.json") or {}
    modes = config.get("pooling_mode") or [mode for key, mode in _OLD_MODES.items() if config.get(key)] or "mean"
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in _MODES:
        raise R2medError(f"{source.name} pools by {' and '.join(map(str, modes))}, which r2med cannot do")
    return {"pooling": _MODES[modes[0]], "exclude_prompt": not config.get("include_prompt", True)}


def max_length(source: Source, subfolder: str = "") -> int:
    """The tokens a model reads: as sentence-transformers says, or else its tokenizer's limit and its positions."""
    under = f"{subfolder}/" if subfolder else ""
    stated = read_json(source, f"{under}sentence_bert_config.json") or {}
    if isinstance(stated.get("max_seq_length"), int):
        return int(stated["max_seq_length"])
    tokenizer = (read_json(source, f"{under}tokenizer_config.json") or {}).get("model_max_length")
    config = read_json(source, f"{under}config.json") or {}
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type", "")):
        # The first two of RoBERTa's places are never used.
        positions -= 2
    known = [int(each) for each in (tokenizer, positions) if isinstance(each, int | float) and 0 < each < 1 << 30]
    return min([*known, _LONGEST])


def _prompts(source: Source) -> dict[str, Any]:
    stated = read_json(source, "config_sentence_transformers.json") or {}
    prompts = stated.get("prompts") or {}
    default = prompts.get(stated.get("default_prompt_name") or "", "")
    document = next((prompts[each] for each in _DOCUMENT_PROMPTS if each in prompts), default)
    found: dict[str, Any] = {
        "query_prompt": Template(prompts.get("query", default), literal=True),
        "document_prompt": Template(document, literal=True),
    }
    similarity = stated.get("similarity_fn_name") or "cosine"
    if similarity not in SIMILARITIES:
        raise R2medError(f"{source.name} compares by {similarity}: add similarity=cosine or similarity=dot")
    lower = (read_json(source, "sentence_bert_config.json") or {}).get("do_lower_case", False)
    return found | {"similarity": similarity, "lowercase": bool(lower)}
