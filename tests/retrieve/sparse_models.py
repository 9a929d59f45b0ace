"""Tiny random learned sparse encoders of the architectures that have cards, as sentence-transformers writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SparseStaticEmbedding, SpladePooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, PreTrainedTokenizerFast

WORDS = (
    "liver kidney heart lung fever cough rash pain nausea gout ataxia tremor copper iron lead zinc "
    "wilson disease corneal rings golden brown aspirin metformin glucose insulin platelet clot stroke"
).split()
TEXTS = [
    "Golden brown corneal rings and tremor: copper in the liver.",
    "fever",
    "Metformin lowers glucose; insulin does too. " * 8,
    "Aspirin keeps a platelet from a clot, and the heart from pain.",
    "xyzzy",
    "iron and lead; zinc and copper",
]


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words, with the marks of BERT around a text."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz.,;:?"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    made = Tokenizer(models.WordPiece(vocab={word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=64, mask_token="[MASK]", **names,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def masked_model(kind: str, folder: Path, seed: int = 0) -> Path:
    """A random model with a head over its vocabulary, weights large enough that a mistake shows."""
    words = len(tokenizer())
    torch.manual_seed(seed)
    if kind == "bert":
        small = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
        model: Any = BertForMaskedLM(BertConfig(**small, vocab_size=words, max_position_embeddings=64))
    else:
        small = {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2}
        model = DistilBertForMaskedLM(DistilBertConfig(**small, vocab_size=words, max_position_embeddings=64))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name.lower():
                weight.copy_(torch.randn_like(weight) * 0.4)
    model.eval().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def transformer(folder: Path) -> Transformer:
    return Transformer(str(folder), transformer_task="fill-mask", max_seq_length=32)


def save(kind: str, folder: Path, **options: Any) -> SparseEncoder:
    """One of `KINDS`, written to a folder; returned as its library has it."""
    plain = masked_model("distilbert" if "distil" in kind else "bert", folder.parent / f"{folder.name}-plain")
    if kind == "bare":
        plain.rename(folder)
        return SparseEncoder(str(folder), device="cpu")
    if kind == "autoencoder":
        plain = Transformer(str(plain), transformer_task="feature-extraction", max_seq_length=32)
        torch.manual_seed(5)
        latent = SparseAutoEncoder(input_dim=16, hidden_dim=64, k=6, k_aux=8, normalize=True)
        with torch.no_grad():
            latent.pre_bias.normal_()
            latent.latent_bias.normal_()
        model = SparseEncoder(modules=[plain, Pooling(16, "mean"), Normalize(), latent], device="cpu", **options)
        model.save(str(folder))
        return SparseEncoder(str(folder), device="cpu")
    pooling = options.pop("pooling", SpladePooling("max", activation_function="log1p_relu" if "v3" in kind else "relu"))
    documents = [transformer(plain), pooling]
    if kind.startswith("inference-free"):
        torch.manual_seed(7)
        table = SparseStaticEmbedding(tokenizer(), torch.rand(len(tokenizer())) * 3, frozen=True)
        modules: list[Any] = [Router.for_query_document([table], documents)]
    elif kind == "two-towers":
        queries = [transformer(masked_model("bert", folder.parent / f"{folder.name}-q", 1)), SpladePooling("max")]
        modules = [Router.for_query_document(queries, documents)]
    else:
        modules = documents
    model = SparseEncoder(modules=modules, device="cpu", **options)
    model.save(str(folder))
    return SparseEncoder(str(folder), device="cpu")


KINDS = (
    "bert",
    "distilbert",
    "inference-free-distilbert",
    "inference-free-distilbert-v3",
    "two-towers",
    "bare",
    "autoencoder",
)
ARCHITECTURES = {
    "splade-v3": "bert",
    "splade-pp-v2": "bert",
    "opensearch-v2-distill": "distilbert",
    "opensearch-doc-v2-distill": "inference-free-distilbert",
    "opensearch-doc-v3-distill": "inference-free-distilbert-v3",
}
"""The kind of each card: same architecture, same pooling, same way with queries."""


def listed_table(folder: Path) -> None:
    """Turn the table of an inference-free model into the JSON that some repositories have."""
    inner = next(folder.glob("query_0_*"))
    weights = SparseEncoder(str(folder), device="cpu")[0].sub_modules["query"][0].weight.tolist()
    words = {number: token for token, number in tokenizer().get_vocab().items()}
    (inner / "idf.json").write_text(json.dumps({words[place]: weight for place, weight in enumerate(weights)}))
    (inner / "config.json").write_text(json.dumps({"frozen": True, "path": "idf.json"}))
    (inner / "model.safetensors").unlink()
