"""XLM-RoBERTa with rotary positions, Jina's architecture, run by the class that transformers has for it.

Such a checkpoint calls itself `xlm-roberta` and names Python code of its repository, without which transformers would
build the usual XLM-RoBERTa and find hardly any of its weights. That code was written for transformers 4. The library's
own class reads the same weights under the same names, so that nothing of the repository has to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from r2med.errors import R2medError

_SAME = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
"""Settings that both have under one name."""
_BASE = 10_000.0
"""The base of the angles if a checkpoint states none."""


def is_rotary_roberta(told: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` is of this architecture; one with adapters for several tasks is not.

    >>> is_rotary_roberta({"model_type": "xlm-roberta", "position_embedding_type": "rotary"})
    True
    >>> is_rotary_roberta({"model_type": "xlm-roberta", "position_embedding_type": "absolute"})
    False
    """
    rotary = told.get("model_type") == "xlm-roberta" and told.get("position_embedding_type") == "rotary"
    return rotary and not told.get("lora_adaptations")


def rotary_config(told: Mapping[str, Any]) -> Any:
    """Build the configuration for transformers' own class."""
    import transformers

    known = getattr(transformers, "JinaEmbeddingsV3Config", None)
    if known is None:
        installed = f"transformers {transformers.__version__}"
        raise R2medError(f"{installed} cannot run XLM-RoBERTa with rotary positions: pip install -U transformers")
    positions = {"rope_type": "default", "rope_theta": float(told.get("rotary_emb_base") or _BASE)}
    return known(**{name: told[name] for name in _SAME if name in told}, rope_parameters=positions)
