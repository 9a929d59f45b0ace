"""Tiny random late-interaction checkpoints of every family: sentence-transformers, PyLate, Stanford's ColBERT, Jina's.

`ARCHITECTURES` says which of them stands for which card.
"""

from __future__ import annotations

import json
import shutil
import string
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    JinaEmbeddingsV3Config,
    JinaEmbeddingsV3Model,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

import rotary_code

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
    """A random transformer."""
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
        "rotary": lambda: JinaEmbeddingsV3Model(
            JinaEmbeddingsV3Config(**_SMALL, vocab_size=size, max_position_embeddings=130, pad_token_id=0)
        ),
    }
    return _randomised(configs[kind]())


def _randomised(model: Any) -> Any:
    """The model with weights large enough that a mistake shows, the same whatever made it draws of its own."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
            normalises = "norm" in name.lower() or "emb_ln" in name
            weight.copy_(1 + 0.1 * drawn if normalises and name.endswith("weight") else 0.2 * drawn)
    return model.eval()


def save_plain(kind: str, folder: Path, *marks: str, cased: bool = False) -> Path:
    """A transformer with its tokenizer."""
    words = tokenizer(*marks, cased=cased)
    backbone(kind, len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def _projection(size: int = DIMENSION, width: int = _SMALL["hidden_size"], seed: int = 3) -> torch.Tensor:
    return torch.randn(size, width, generator=torch.Generator().manual_seed(seed)) * 0.3


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


def sentence_pieces() -> PreTrainedTokenizerFast:
    """Pieces as XLM-RoBERTa has them, a word's first with a bar before it, and Jina's markers."""
    letters = [chr(code) for code in range(33, 127)]
    words = ["<s>", "<pad>", "</s>", "<unk>", *letters, "▁", *(f"▁{letter}" for letter in letters if letter.isalnum())]
    pieces = [(word, -2.0 * (word == "▁") - 1) for word in (*words, "▁fever", "▁the", "<mask>")]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ends = [("<s>", 0), ("</s>", 2)]
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {f"{name}_token": "<s>" for name in ("bos", "cls")} | {f"{name}_token": "</s>" for name in ("eos", "sep")}
    found = PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=8192,
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token=AddedToken("<mask>", lstrip=True, normalized=False),
        **names,
    )
    found.add_tokens(["[QueryMarker]", "[DocumentMarker]"], special_tokens=True)
    return found


def save_jina(folder: Path, **metadata: Any) -> Path:
    """A checkpoint as jina-colbert-v2 is: Stanford's files, and Python code that `config.json` names."""
    folder.mkdir()
    words = sentence_pieces()
    words.save_pretrained(folder)
    told = _SMALL | {"vocab_size": len(words), "type_vocab_size": 1, "rotary_emb_base": 20000.0, "pad_token_id": 1}
    model = _randomised(rotary_code.RotaryModel(rotary_code.RotaryConfig(**told)))
    weights = {f"roberta.{name}": tensor for name, tensor in model.state_dict().items()}
    save_file(weights | {"linear.weight": _projection()}, folder / "model.safetensors", {"format": "pt"})
    told |= {"model_type": "xlm-roberta", "position_embedding_type": "rotary", "max_position_embeddings": 8194}
    code = {"AutoConfig": "modeling_rotary.RotaryConfig", "AutoModel": "modeling_rotary.RotaryModel"}
    (folder / "config.json").write_text(json.dumps(told | {"architectures": ["HF_ColBERT"], "auto_map": code}))
    shutil.copy(rotary_code.__file__, folder / "modeling_rotary.py")
    settings = {"query_token_id": "[QueryMarker]", "doc_token_id": "[DocumentMarker]", "query_maxlen": 32}
    settings |= {"doc_maxlen": 300, "attend_to_mask_tokens": True, "mask_punctuation": True}
    (folder / "artifact.metadata").write_text(json.dumps(settings | metadata))
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


def _save_dense(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """A linear layer as PyLate writes it; one with a matrix around it adds its input to its output."""
    folder.mkdir()
    size, width = weights["linear.weight"].shape
    told = {"in_features": width, "out_features": size, "bias": False, "use_residual": "residual.weight" in weights}
    activation = {"activation_function": "torch.nn.modules.linear.Identity"}
    (folder / "config.json").write_text(json.dumps(told | activation))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def save_pylate(kind: str, folder: Path, *, lower: bool = False, deep: bool = False, **settings: Any) -> Path:
    """A checkpoint as PyLate writes it: a transformer and a projection, and all settings in one file at the top."""
    save_plain(kind, folder, "[Q] ", "[D] ", cased=lower)
    layers = [{"linear.weight": _projection()}]
    if deep:
        wide = _projection(_SMALL["intermediate_size"], seed=4)
        layers = [{"linear.weight": wide, "residual.weight": wide.flip(0)}, {"linear.weight": _projection(width=48)}]
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, weights in enumerate(layers, 1):
        path = f"{number}_Dense"
        _save_dense(folder / path, weights)
        modules.append({"idx": number, "name": str(number), "path": path, "type": "pylate.models.Dense.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 59, "do_lower_case": lower}))
    told = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 24, "document_length": 60}
    told |= {"attend_to_expansion_tokens": False, "skiplist_words": list(string.punctuation), "prompts": {}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(told | settings))
    return folder


def reference(folder: Path) -> MultiVectorEncoder:
    """The checkpoint as sentence-transformers loads it, code of its own included."""
    return MultiVectorEncoder(str(folder), device="cpu", trust_remote_code=True, model_kwargs={"dtype": torch.float32})


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "stanford-bert": lambda folder: save_stanford("bert", folder),
    "stanford-xlm-roberta": lambda folder: save_stanford("xlm-roberta", folder, attend_to_mask_tokens=True),
    "stanford-modernbert": lambda folder: save_stanford("modernbert", folder, mask_punctuation=False),
    "jina": save_jina,
    "pylate-modernbert": lambda folder: save_pylate("modernbert", folder, model_type="ColBERT"),
    "pylate-old-bert": lambda folder: save_pylate("bert", folder),
    "pylate-unexpanded": lambda folder: save_pylate("modernbert", folder, do_query_expansion=False),
    "pylate-attended": lambda folder: save_pylate("xlm-roberta", folder, attend_to_expansion_tokens=True),
    "pylate-edge": lambda folder: save_pylate("modernbert", folder, lower=True, deep=True, do_query_expansion=False),
    "native-bert": lambda folder: save_native("bert", folder),
    "native-rotary": lambda folder: save_native("rotary", folder),
    "native-residual": lambda folder: save_native("modernbert", folder, residual=True),
    "native-min": lambda folder: save_native(
        "modernbert", folder, query_expansion={"strategy": "min", "attend": True, "length": 24}
    ),
    "pylate-lower": lambda folder: save_pylate("bert", folder, lower=True),
}
"""Tiny checkpoints by name: each format with each architecture that has a card, and what settings there are."""
ARCHITECTURES = {
    "colbertv2": "stanford-bert",
    "answerai-colbert-small": "stanford-bert",
    "gte-moderncolbert": "pylate-modernbert",
    "reason-moderncolbert": "pylate-modernbert",
    "jina-colbert-v2": "jina",
    "mxbai-edge-colbert": "pylate-edge",
    "mxbai-edge-colbert-32m": "pylate-edge",
    "lateon": "pylate-modernbert",
}
"""The family of each card: same format, same architecture, same kind of head."""
QUERIES = ["which nerve is injured when the wrist drops?", "fever", "a very long question, " * 6]
DOCUMENTS = [
    "Metformin lowers hepatic glucose production.",
    "A 54-year-old man has crushing chest pain radiating to the left arm; sweating, nausea (since this morning).",
    "fever!",
    "[D] [MASK] ... unused words [DocumentMarker] <mask> €",
]
