"""The kinds of trained models: their construction from a base, their losses, columns and trainers.

The parts are those of sentence-transformers; this module decides which of them go together.
"""

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
    if kind == RERANKER:
        model = CrossEncoder(str(base), num_labels=1)
    elif kind == LATE:
        model = MultiVectorEncoder(str(base))
    elif kind == SPARSE:
        model = SparseEncoder(modules=_splade_modules(base)) if not _is_sparse(base) else SparseEncoder(str(base))
    else:
        model = SentenceTransformer(str(base))
    model.model_card_data.widget = [{"text": ""}]  # no examples are looked for: the card is ours
    wanted = settings.train
    if wanted.max_length:
        _check_places(model[0].model, base, wanted.max_length)
        model.max_seq_length = wanted.max_length
    if kind != RERANKER and (wanted.query_prompt or wanted.document_prompt):
        model.prompts |= {"query": wanted.query_prompt, "document": wanted.document_prompt}
    if settings.lora.rank:
        _add_lora(model, settings, kind)
    return model


def _check_places(transformer: Any, base: Path, tokens: int) -> None:
    """Refuse to read more tokens than the base has places for."""
    inner = getattr(transformer, str(transformer.base_model_prefix), transformer)
    check_limit(base.name, tokens, positions_of(inner), "a lower [train] max_length")


def _is_sparse(base: Path) -> bool:
    return (base / "modules.json").is_file() and "sparse_encoder" in (base / "modules.json").read_text("utf-8")


def _splade_modules(base: Path) -> list[Any]:
    """Return the masked-language-model head over a base, pooled by the largest weight of each term."""
    return [Transformer(str(base), transformer_task="fill-mask"), SpladePooling(pooling_strategy="max")]


def _add_lora(model: Any, settings: RunSettings, kind: str) -> None:
    lora = settings.lora
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear",
        modules_to_save=["classifier"] if kind == RERANKER and hasattr(model.model, "classifier") else None,
    )
    transformer = model[0]
    transformer.model = get_peft_model(transformer.model, config)


def merge_lora(model: Any) -> None:
    """Merge the weights of an adapter into those of the model."""
    model[0].model = model[0].model.merge_and_unload()


def make_loss(kind: str, model: Any, settings: RunSettings) -> Any:
    """Make the loss of a kind of model."""
    loss = settings.loss
    if loss.matryoshka and kind != DENSE:
        raise R2medError("[loss] matryoshka goes with --kind dense: other models have no vector to shorten")
    made = {DENSE: _dense_loss, SPARSE: _sparse_loss, LATE: _late_loss, RERANKER: _reranker_loss}[kind](model, settings)
    if loss.matryoshka:
        size = model.get_embedding_dimension()
        wrong = [shorter for shorter in loss.matryoshka if shorter > size]
        if wrong:
            raise R2medError(f"[loss] matryoshka has {wrong[0]}, and the vectors of the base have {size}")
        made = dense_losses.MatryoshkaLoss(model, made, matryoshka_dims=sorted({size, *loss.matryoshka}, reverse=True))
    return made


def _dense_loss(model: Any, settings: RunSettings) -> Any:
    loss = settings.loss
    if settings.loss_of(DENSE) == DISTILL:
        heat = {"student_temperature": loss.temperature, "teacher_temperature": loss.teacher_temperature}
        return dense_losses.DistillKLDivLoss(model, similarity_fct=pairwise_cos_sim, **heat)
    return dense_losses.CachedMultipleNegativesRankingLoss(
        model, scale=1 / loss.temperature, mini_batch_size=loss.mini_batch
    )


def _sparse_loss(model: Any, settings: RunSettings) -> Any:
    loss = settings.loss
    weights = {"query_regularizer_weight": loss.query_flops, "document_regularizer_weight": loss.document_flops}
    if settings.loss_of(SPARSE) == DISTILL:
        inner = sparse_losses.SparseDistillKLDivLoss(model, teacher_temperature=loss.teacher_temperature)
        return sparse_losses.SpladeLoss(model, inner, **weights)
    inner = sparse_losses.SparseMultipleNegativesRankingLoss(model)
    return sparse_losses.CachedSpladeLoss(model, inner, mini_batch_size=loss.mini_batch, **weights)


def _late_loss(model: Any, settings: RunSettings) -> Any:
    loss = settings.loss
    if settings.loss_of(LATE) == DISTILL:
        return late_losses.MultiVectorDistillKLDivLoss(model, teacher_temperature=loss.teacher_temperature)
    return late_losses.CachedMultiVectorMultipleNegativesRankingLoss(model, mini_batch_size=loss.mini_batch)


def _reranker_loss(model: Any, settings: RunSettings) -> Any:
    if settings.loss_of(RERANKER) == DISTILL:
        return pair_losses.BinaryCrossEntropyLoss(model)
    return pair_losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=settings.loss.mini_batch)


def make_columns(kind: str, rows: Sequence[TrainerRow], settings: RunSettings) -> dict[str, list[Any]]:
    """Return the columns that the trainer of a kind takes."""
    distils = settings.loss_of(kind) == DISTILL
    if kind == RERANKER and distils:
        return labelled_pairs(rows)
    count = settings.train.negatives or min(_MOST_NEGATIVES, common_negatives(rows))
    columns: dict[str, list[Any]] = dict(triplets(rows, count))
    if distils:
        columns["label"] = [
            [positive.score, *(each.score for each in pick_evenly(row.negatives, count))]
            for row in rows
            if len(row.negatives) >= count
            for positive in row.positives
        ]
    return columns


def trainer_parts(kind: str) -> tuple[Any, Any]:
    """Return the trainer of a kind and the class of its arguments.

    A checkpoint holds the weights as they are, an adapter beside those it adapts: what a library saves for others to
    load need not bring back the state of a training.
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
