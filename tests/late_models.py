"""Tiny random late-interaction checkpoints of every family: sentence-transformers, PyLate and Stanford's ColBERT."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

torch.set_num_threads(1)
_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
DIMENSION = 16


def tokenizer(*marks: str, cased: bool = False) -> PreTrainedTokenizerFast:
    """Whole words of one letter and their continuations, with the marks of BERT and of ColBERT."""
    letters = [chr(code) for code in range(33, 127)]
    words = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    words += [f"##{letter}" for letter in letters]
    made = Tokenizer(models.WordPiece(vocab={word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(word, words.index(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {name: f"[{name[:-6].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token")}
    found = PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=96, mask_token="[MASK]", **names)
    if marks:
        found.add_tokens(list(marks))
    return found


def backbone(kind: str, size: int) -> Any:
    """A random transformer, with weights large enough that a mistake shows."""
    torch.manual_seed(7)
    configs = {
        "bert": lambda: BertModel(BertConfig(**_SMALL, vocab_size=size, max_position_embeddings=128)),
        "modernbert": lambda: ModernBertModel(
            ModernBertConfig(
                **_SMALL,
                vocab_size=size,
                max_position_embeddings=128,
                local_attention=8,
                global_attn_every_n_layers=2,
                **dict.fromkeys(("bos_token_id", "cls_token_id"), 4),
                **dict.fromkeys(("eos_token_id", "sep_token_id"), 5),
                pad_token_id=0,
            )
        ),
        "xlm-roberta": lambda: XLMRobertaModel(
            XLMRobertaConfig(**_SMALL, vocab_size=size, max_position_embeddings=130, pad_token_id=0)
        ),
    }
    model = configs[kind]().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name.lower():
                weight.copy_(torch.randn_like(weight) * 0.2)
    return model


def save_plain(kind: str, folder: Path, *marks: str, cased: bool = False) -> Path:
    """A transformer with its tokenizer."""
    words = tokenizer(*marks, cased=cased)
    backbone(kind, len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def _projection() -> torch.Tensor:
    return torch.randn(DIMENSION, _SMALL["hidden_size"], generator=torch.Generator().manual_seed(3)) * 0.3


def save_stanford(kind: str, folder: Path, **metadata: Any) -> Path:
    """A checkpoint as Stanford's library writes it: the projection among the weights, the settings beside them."""
    save_plain(kind, folder)
    weights = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    prefix = {"bert": "bert", "xlm-roberta": "roberta", "modernbert": "model"}[kind]
    weights = {name.replace("model.", f"{prefix}.", 1): tensor for name, tensor in weights.items()}
    save_file(weights | {"linear.weight": _projection()}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    told = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 24, "doc_maxlen": 60}
    (folder / "artifact.metadata").write_text(json.dumps(told | metadata))
    return folder


def save_native(kind: str, folder: Path, *, residual: bool = False, **settings: Any) -> Path:
    """A checkpoint of sentence-transformers, with markers of its own."""
    words = ("[Q] ", "[D] ")
    base = save_plain(kind, folder.with_name(f"{folder.name}-base"), *words)
    layers = (
        [Dense(32, 24, bias=False, activation_function=None, module_input_name="token_embeddings")] if residual else []
    )
    last = Dense(
        24 if residual else 32,
        DIMENSION,
        bias=False,
        activation_function=None,
        module_input_name="token_embeddings",
        use_residual=residual,
    )
    expansion = {"strategy": "fixed", "attend": False, "length": 24}
    knobs = {"query_expansion": expansion, "document_length": 60} | settings
    torch.manual_seed(11)
    modules = [
        Transformer(str(base), **knobs),
        *layers,
        last,
        MultiVectorMask(skiplist_words=list(string.punctuation)),
        Normalize(module_input_name="token_embeddings"),
    ]
    MultiVectorEncoder(modules=modules, prompts={"query": words[0], "document": words[1]}, device="cpu").save(
        str(folder)
    )
    return folder


def save_pylate(kind: str, folder: Path, *, lower: bool = False, **settings: Any) -> Path:
    """A checkpoint as PyLate writes it: a transformer and a projection, and all settings in one file at the top."""
    save_plain(kind, folder, "[Q] ", "[D] ", cased=lower)
    (folder / "1_Dense").mkdir()
    dense = {"in_features": 32, "out_features": DIMENSION, "bias": False}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense | activation))
    save_file({"linear.weight": _projection()}, folder / "1_Dense" / "model.safetensors", {"format": "pt"})
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 59, "do_lower_case": lower}))
    told = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 24, "document_length": 60}
    told |= {"attend_to_expansion_tokens": False, "skiplist_words": list(string.punctuation), "prompts": {}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(told | settings))
    return folder


def reference(folder: Path) -> MultiVectorEncoder:
    """The checkpoint as sentence-transformers loads it."""
    return MultiVectorEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
