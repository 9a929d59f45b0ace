"""The kinds of trained models: their construction from a base, their losses, columns and trainers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentence_transformers as library
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_model, save_model
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder import losses as pair_losses
from sentence_transformers.multi_vector_encoder import losses as late_losses
from sentence_transformers.sentence_transformer import losses as dense_losses
from sentence_transformers.sparse_encoder import losses as sparse_losses
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import pairwise_cos_sim

from r2med.encode.loading import positions_of
from r2med.errors import R2medError
from r2med.models.tokenizer import check_limit
from r2med.training.negatives import pick_evenly
from r2med.training.rows import TrainerRow, common_negatives, labelled_pairs, triplets
from r2med.training.settings import DENSE, DISTILL, LATE, RERANKER, SPARSE, RunSettings

_MOST_NEGATIVES = 7
_WEIGHTS = "weights.safetensors"


def make_model(kind: str, base: Path, settings: RunSettings) -> Any:
    """Make a model of a kind from the folder of a base, on any available device."""
    modules = base / "modules.json"
    if kind == RERANKER:
        model = CrossEncoder(str(base), num_labels=1)
    elif kind == LATE:
        model = MultiVectorEncoder(str(base))
    elif kind == DENSE:
        model = SentenceTransformer(str(base))
    elif modules.is_file() and "sparse_encoder" in modules.read_text("utf-8"):
        model = SparseEncoder(str(base))
    else:  # the masked-language-model head, pooled by the largest weight of each term
        head = Transformer(str(base), transformer_task="fill-mask")
        model = SparseEncoder(modules=[head, SpladePooling(pooling_strategy="max")])
    model.model_card_data.widget = [{"text": ""}]  # no examples are looked for: the card is ours
    train, lora, transformer = settings.train, settings.lora, model[0]
    if train.max_length:
        inner = getattr(transformer.model, str(transformer.model.base_model_prefix), transformer.model)
        check_limit(base.name, train.max_length, positions_of(inner), "a lower [train] max_length")
        model.max_seq_length = train.max_length
    if kind != RERANKER and (train.query_prompt or train.document_prompt):
        model.prompts |= {"query": train.query_prompt, "document": train.document_prompt}
    if lora.rank:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules="all-linear",
            modules_to_save=["classifier"] if kind == RERANKER and hasattr(model.model, "classifier") else None,
        )
        transformer.model = get_peft_model(transformer.model, config)
    return model


def merge_lora(model: Any) -> None:
    """Merge the weights of an adapter into those of the model."""
    model[0].model = model[0].model.merge_and_unload()


def make_loss(kind: str, model: Any, settings: RunSettings) -> Any:
    """Make the loss of a kind of model."""
    loss = settings.loss
    if loss.matryoshka and kind != DENSE:
        raise R2medError("[loss] matryoshka goes with --kind dense: other models have no vector to shorten")
    distils = settings.loss_of(kind) == DISTILL
    size = {"mini_batch_size": loss.mini_batch}
    heat = {"teacher_temperature": loss.teacher_temperature}
    inner: Any
    if kind == RERANKER:
        if distils:
            return pair_losses.BinaryCrossEntropyLoss(model)
        return pair_losses.CachedMultipleNegativesRankingLoss(model, **size)
    if kind == LATE:
        if distils:
            return late_losses.MultiVectorDistillKLDivLoss(model, **heat)
        return late_losses.CachedMultiVectorMultipleNegativesRankingLoss(model, **size)
    if kind == SPARSE:
        weights = {"query_regularizer_weight": loss.query_flops, "document_regularizer_weight": loss.document_flops}
        if distils:
            return sparse_losses.SpladeLoss(model, sparse_losses.SparseDistillKLDivLoss(model, **heat), **weights)
        inner = sparse_losses.SparseMultipleNegativesRankingLoss(model)
        return sparse_losses.CachedSpladeLoss(model, inner, **size, **weights)
    if distils:
        heat["student_temperature"] = loss.temperature
        inner = dense_losses.DistillKLDivLoss(model, similarity_fct=pairwise_cos_sim, **heat)
    else:
        inner = dense_losses.CachedMultipleNegativesRankingLoss(model, scale=1 / loss.temperature, **size)
    if loss.matryoshka:
        whole = model.get_embedding_dimension()
        if (longest := max(loss.matryoshka)) > whole:
            raise R2medError(f"[loss] matryoshka has {longest}, and the vectors of the base have {whole}")
        inner = dense_losses.MatryoshkaLoss(
            model, inner, matryoshka_dims=sorted({whole, *loss.matryoshka}, reverse=True)
        )
    return inner


def make_columns(kind: str, rows: Sequence[TrainerRow], settings: RunSettings) -> dict[str, list[Any]]:
    """Return the columns that the trainer of a kind takes."""
    distils = settings.loss_of(kind) == DISTILL
    if kind == RERANKER and distils:
        return labelled_pairs(rows)
    count = settings.train.negatives or min(_MOST_NEGATIVES, common_negatives(rows))
    columns: dict[str, list[Any]] = dict(triplets(rows, count))
    if distils:
        columns["label"] = [
            [positive.score, *(negative.score for negative in pick_evenly(row.negatives, count))]
            for row in rows
            if len(row.negatives) >= count
            for positive in row.positives
        ]
    return columns


def trainer_parts(kind: str) -> tuple[Any, Any]:
    """Return the trainer of a kind and the class of its arguments.

    A checkpoint holds all weights as they are: what a library saves for others need not bring back a training.
    """
    name = {DENSE: "SentenceTransformer", SPARSE: "SparseEncoder", LATE: "MultiVectorEncoder", RERANKER: "CrossEncoder"}
    prefix = name[kind]
    trainer = getattr(library, f"{prefix}Trainer")

    class ResumableTrainer(trainer):  # type: ignore[misc, valid-type]
        """Trainer whose checkpoints resume a training exactly."""

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_model(self.model, str(folder / _WEIGHTS))

        def _load_from_checkpoint(self, checkpoint_path: str) -> None:
            load_model(self.model, str(Path(checkpoint_path) / _WEIGHTS))

    return ResumableTrainer, getattr(library, f"{prefix}TrainingArguments")
