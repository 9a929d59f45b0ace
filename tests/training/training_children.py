"""What tests do in processes of their own, forked from one that has loaded the trainers: quick, and to be killed."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

from bridging import SIGNS

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["sentence_transformers", "datasets", "peft", "polars"])
_PATIENCE = 300


def start(work: Callable[..., None], *values: object) -> BaseProcess:
    """Begin a piece of work in a child."""
    child = _CONTEXT.Process(target=_work, args=(work, os.environ["R2MED_HOME"], values))
    child.start()
    return child


def finish(work: Callable[..., None], *values: object) -> None:
    """Have a piece of work done in a child."""
    child = start(work, *values)
    child.join(_PATIENCE)
    assert child.exitcode == 0


def _work(work: Callable[..., None], home: str, values: tuple[object, ...]) -> None:
    import torch

    os.environ["R2MED_HOME"] = home
    torch.set_num_threads(1)
    work(*values)


def make_base(folder: Path) -> None:
    """A model with random weights that has the words of the documents."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = "child has why treatment of disease arises when the gene is lost which in young . ,".split()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *SIGNS, *words])
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(folder)


def call(words: list[str], said: Path) -> None:
    """Run a command, and leave its status and what it printed."""
    from click.testing import CliRunner

    from r2med.cli.main import app

    done = CliRunner().invoke(app, words)
    said.write_text(json.dumps([done.exit_code, done.stdout, str(done.exception or ""), done.stderr]))


def call_all(commands: list[list[str]], said: Path) -> None:
    """Run several commands one after another."""
    for number, words in enumerate(commands):
        call(words, said.with_name(f"{said.name}-{number}"))


def call_as_one_of(count: int, rank: int, port: int, words: list[str], said: Path) -> None:
    """Run a command as one of several processes, with the variables that torchrun sets."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    call(words, said)


def train_quietly(words: list[str]) -> None:
    """Run a training that nobody listens to, since it will be killed."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        call(words, Path(os.devnull))


def train_on_exports(base: Path, folder: Path, said: Path) -> None:
    """A step of each of sentence-transformers' trainers on the files as they are, without a column of ours."""
    import sentence_transformers as library
    from datasets import Dataset
    from sentence_transformers.cross_encoder import losses as pairs
    from sentence_transformers.multi_vector_encoder import losses as late
    from sentence_transformers.sentence_transformer import losses as dense
    from sentence_transformers.sparse_encoder import losses as sparse
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    def splade_loss(model: object) -> object:
        return sparse.SpladeLoss(model, sparse.SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)

    splade = [library.sentence_transformer.modules.Transformer(str(base), transformer_task="fill-mask")]
    models = {
        "SentenceTransformer": library.SentenceTransformer(str(base)),
        "SparseEncoder": library.SparseEncoder(modules=[*splade, SpladePooling()]),
        "MultiVectorEncoder": library.MultiVectorEncoder(str(base)),
        "CrossEncoder": library.CrossEncoder(str(base), num_labels=1),
    }
    jobs = (
        ("sentence-transformers", "SentenceTransformer", dense.MultipleNegativesRankingLoss),
        ("sentence-transformers", "SparseEncoder", splade_loss),
        ("sentence-transformers", "MultiVectorEncoder", late.MultiVectorMultipleNegativesRankingLoss),
        ("cross-encoder", "CrossEncoder", pairs.BinaryCrossEntropyLoss),
        ("cross-encoder-lists", "CrossEncoder", pairs.LambdaLoss),
    )
    found = []
    for form, name, loss in jobs:
        told = {"max_steps": 1, "per_device_train_batch_size": 2, "save_strategy": "no", "report_to": "none"}
        arguments = getattr(library, f"{name}TrainingArguments")(str(said.with_suffix("")), use_cpu=True, **told)
        data = Dataset.from_parquet(str(folder / form / "train.parquet"), cache_dir=str(said.with_suffix(".cache")))
        trainer = getattr(library, f"{name}Trainer")(
            model=models[name], args=arguments, train_dataset=data, loss=loss(models[name])
        )
        found.append([form, name, data.num_rows, trainer.train().training_loss])
    said.write_text(json.dumps(found))


def read_by_flagembedding(file: Path, said: Path) -> None:
    """What FlagEmbedding's own dataset makes of a file."""
    from FlagEmbedding.abc.finetune.embedder import AbsEmbedderDataArguments, AbsEmbedderTrainDataset

    arguments = AbsEmbedderDataArguments(
        train_data=[str(file)],
        cache_path=str(said.with_suffix(".cache")),
        knowledge_distillation=True,
        train_group_size=4,
    )
    dataset = AbsEmbedderTrainDataset(arguments, None)
    said.write_text(json.dumps([dataset[place] for place in range(len(dataset))]))


def read_by_pylate(folder: Path, said: Path) -> None:
    """What PyLate's own processing makes of tables."""
    import polars as pl
    from datasets import Dataset
    from pylate.utils import KDProcessing

    train, queries, documents = (
        Dataset.from_polars(pl.read_parquet(folder / f"train{name}.parquet")) for name in ("", "-queries", "-documents")
    )
    train.set_transform(KDProcessing(queries=queries, documents=documents).transform)
    said.write_text(json.dumps([dict(row) for row in train]))
