"""Tiny random models of every architecture that reranks, with tokenizers of a few hundred words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

torch.set_num_threads(1)

WORDS = (
    "fever cough rash pain scurvy gout anaemia asthma sepsis stroke kidney liver heart lung skin bone nerve blood "
    "vitamin iron uric acid the a of in is and what why which does cause treat patient with after days child woman man "
    "query document : . ? , - yes no 0 1 judge"
).split()
PAD, UNK, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def word_tokenizer(pair: str, pad: int = 0, *, typed: bool = False) -> PreTrainedTokenizerFast:
    """Words as tokens, with the special tokens of BERT's kind around a pair."""
    specials = [UNK, PAD, CLS, SEP] if pad else [PAD, UNK, CLS, SEP]
    vocabulary = {word: number for number, word in enumerate([*specials, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}", pair=pair, special_tokens=[(CLS, vocabulary[CLS]), (SEP, vocabulary[SEP])]
    )
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if typed else [])]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        model_max_length=64,
        model_input_names=names,
    )


BERT_PAIR = f"{CLS} $A {SEP} $B:1 {SEP}:1"
ROBERTA_PAIR = f"{CLS} $A {SEP} {SEP} $B {SEP}"


def byte_tokenizer(*, bos: str = "", specials: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Bytes and a few words as tokens, as language models have them: `<s> A <s> B` for Llama, nothing for Qwen."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pieces = {symbol: number for number, symbol in enumerate(sorted(alphabet))}
    merges: list[tuple[str, str]] = []
    for word in ("yes", "no", "query", "document", "Ġthe"):
        for end in range(2, len(word) + 1):
            merge = (word[: end - 1], word[end - 1])
            if merge not in merges:
                merges.append(merge)
            pieces.setdefault(word[:end], len(pieces))
    backend = Tokenizer(models.BPE(pieces, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", bos_token=bos or None, additional_special_tokens=list(specials)
    )
    if bos:
        number = tokenizer.convert_tokens_to_ids(bos)
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
        )
    return tokenizer


def _save(model: Any, tokenizer: Any, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _spread(model: Any) -> Any:
    """Random weights large enough that pairs differ in more than the last digits."""
    torch.manual_seed(7)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.25)
    return model


def bert(folder: Path, labels: int = 1, *, typed: bool = True) -> Path:
    tokenizer = word_tokenizer(BERT_PAIR, typed=typed)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), num_labels=labels, max_position_embeddings=64, pad_token_id=0, **SIZES
    )
    return _save(_spread(transformers.BertForSequenceClassification(config)), tokenizer, folder)


def xlm_roberta(folder: Path) -> Path:
    tokenizer = word_tokenizer(ROBERTA_PAIR, pad=1)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=3,
        **SIZES,
    )
    return _save(_spread(transformers.XLMRobertaForSequenceClassification(config)), tokenizer, folder)


def untyped_bert(folder: Path) -> Path:
    """A BERT whose tokenizer does not tell the two texts of a pair apart."""
    return bert(folder, typed=False)


def deberta(folder: Path) -> Path:
    tokenizer = word_tokenizer(BERT_PAIR, typed=True)
    config = transformers.DebertaV2Config(
        vocab_size=len(tokenizer),
        num_labels=1,
        max_position_embeddings=64,
        type_vocab_size=0,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=8,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        pad_token_id=0,
        **SIZES,
    )
    return _save(_spread(transformers.DebertaV2ForSequenceClassification(config)), tokenizer, folder)


def modernbert(folder: Path) -> Path:
    tokenizer = word_tokenizer(f"{CLS} $A {SEP} $B {SEP}")
    config = transformers.ModernBertConfig(
        vocab_size=len(tokenizer),
        num_labels=1,
        max_position_embeddings=64,
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
        **SIZES,
    )
    return _save(_spread(transformers.ModernBertForSequenceClassification(config)), tokenizer, folder)


def llama_base(folder: Path) -> Path:
    """A language model without a classification head, as Llama-2 is."""
    tokenizer = byte_tokenizer(bos="<s>")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=512, num_key_value_heads=2, pad_token_id=None, **SIZES
    )
    return _save(_spread(transformers.LlamaForCausalLM(config)), tokenizer, folder)


def llama_adapter(base: Path, folder: Path) -> Path:
    """A LoRA adapter with a one-label head on the base, as RankLLaMA is."""
    from peft import LoraConfig, get_peft_model

    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    config = LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    wrapped = get_peft_model(model, config)
    torch.manual_seed(3)
    for name, weight in wrapped.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.3)
    wrapped.save_pretrained(folder)
    return folder


CHAT = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")


def qwen3(folder: Path) -> Path:
    tokenizer = byte_tokenizer(specials=CHAT)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        **SIZES,
    )
    return _save(_spread(transformers.Qwen3ForCausalLM(config)), tokenizer, folder)
