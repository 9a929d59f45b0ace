"""Tiny random models of real architectures, saved as folders that transformers and sentence-transformers can load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast, T5EncoderModel

torch.set_num_threads(1)

HIDDEN = 32
TEXTS = [
    "Metformin lowers hepatic glucose production.",
    "A 54-year-old man has crushing chest pain radiating to the left arm, with sweating and nausea since this morning.",
    "fever",
    "Which nerve is injured when the wrist drops after a fracture of the humeral shaft?",
    "Die Übelkeit begann gestern; 37,9 °C.",
    "Aspirin inhibits cyclooxygenase irreversibly, which keeps platelets from making thromboxane for their whole life.",
]
"""Short and long, one of them not plain ASCII."""

_SMALL = {"hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = _SMALL | {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 300, "max_position_embeddings": 512}
_ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def byte_tokenizer(*, bos: bool = False, eos: bool = False, pad: bool = True) -> PreTrainedTokenizerFast:
    """A token for each byte, so that every text, line breaks included, can be told from every other."""
    special = ["<s>", "</s>", "<pad>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if bos or eos:
        single = [*(["<s>"] if bos else []), "$A", *(["</s>"] if eos else [])]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=" ".join(single), special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 400}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **({"pad_token": "<pad>"} if pad else {}))


def bert_tokenizer() -> PreTrainedTokenizerFast:
    """Word pieces of one letter, with the marks of BERT around a text and between two."""
    letters = [chr(code) for code in (*range(33, 127), *range(0xDF, 0x100), 0xB0)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    )


def _bert(**changes: Any) -> Any:
    from transformers import BertConfig, BertModel

    size = bert_tokenizer().vocab_size
    return BertModel(BertConfig(**(_SMALL | {"vocab_size": size, "max_position_embeddings": 128} | changes)))


def _xlm_roberta() -> Any:
    from transformers import XLMRobertaConfig, XLMRobertaModel

    return XLMRobertaModel(XLMRobertaConfig(**_SMALL, vocab_size=300, max_position_embeddings=402, **_ENDS))


def _mistral() -> Any:
    from transformers import MistralConfig, MistralModel

    return MistralModel(MistralConfig(**_DECODER, sliding_window=None, **_ENDS))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(LlamaConfig(**_DECODER, **_ENDS))


def _qwen2() -> Any:
    from transformers import Qwen2Config, Qwen2Model

    return Qwen2Model(Qwen2Config(**{name: value for name, value in _DECODER.items() if name != "head_dim"}, **_ENDS))


def _qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3Model

    return Qwen3Model(Qwen3Config(**_DECODER, **_ENDS))


def _gemma() -> Any:
    from transformers import GemmaConfig, GemmaModel

    return GemmaModel(GemmaConfig(**_DECODER, **_ENDS))


def _gemma3() -> Any:
    from transformers import Gemma3TextConfig, Gemma3TextModel

    return Gemma3TextModel(Gemma3TextConfig(**_DECODER, sliding_window=64, **_ENDS))


def _gpt_neox() -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXModel

    return GPTNeoXModel(GPTNeoXConfig(**_SMALL, vocab_size=300, max_position_embeddings=512, **_ENDS))


def _t5() -> Any:
    from transformers import T5Config

    sizes = {"d_model": HIDDEN, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 300}
    return T5EncoderModel(T5Config(**sizes, pad_token_id=2, eos_token_id=1, feed_forward_proj="gated-gelu"))


_MODELS: Mapping[str, tuple[Callable[[], Any], Callable[[], PreTrainedTokenizerFast]]] = {
    "bert": (_bert, bert_tokenizer),
    "xlm-roberta": (_xlm_roberta, lambda: byte_tokenizer(bos=True, eos=True)),
    "mistral": (_mistral, lambda: byte_tokenizer(bos=True, pad=False)),
    "llama": (_llama, lambda: byte_tokenizer(bos=True, pad=False)),
    "qwen2": (_qwen2, lambda: byte_tokenizer()),
    "qwen3": (_qwen3, lambda: byte_tokenizer(eos=True)),
    "gemma": (_gemma, lambda: byte_tokenizer(bos=True)),
    "gemma3": (_gemma3, lambda: byte_tokenizer(bos=True, eos=True)),
    "gpt-neox": (_gpt_neox, lambda: byte_tokenizer(pad=False)),
    "t5": (_t5, lambda: byte_tokenizer(eos=True)),
}
ARCHITECTURES = tuple(_MODELS)


def save(architecture: str, folder: Path, seed: int = 0) -> Path:
    """Write a random model of an architecture, with weights large enough that a mistake shows."""
    make, tokenizer = _MODELS[architecture]
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name.lower():
                weight.copy_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def load(folder: Path, **options: Any) -> tuple[Any, Any]:
    """The model and tokenizer of a folder, as a person would load them."""
    model_type = options.pop("model_type", "")
    kind = T5EncoderModel if model_type == "t5" else AutoModel
    return kind.from_pretrained(folder, **options).eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def hidden(model: Any, ids: list[int], **more: Any) -> torch.Tensor:
    """The last hidden states of one sequence alone, with no padding anywhere."""
    return model(input_ids=torch.tensor([ids]), **more).last_hidden_state[0]


def unit(vectors: Any) -> np.ndarray:
    """Vectors of length one."""
    array = np.asarray(vectors, dtype=np.float32)
    return array / np.linalg.norm(array, axis=-1, keepdims=True)
