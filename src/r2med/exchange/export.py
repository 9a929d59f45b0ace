"""Export of runs of the ledger in the formats of other tools: ranked lists, generated texts, and result files.

Files of results are as other tools write them: MTEB's load with its result class, the authors' are those of their
repository, and HAKARI-Bench's hold every field that its source reads, as it reads them; the tool is not published as a
package.
"""

from __future__ import annotations

import hashlib
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

import r2med
from r2med.data.dataset import Dataset, Generation, Qrels
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.run_files import FORMATS
from r2med.data.task_names import task_names
from r2med.data.tasks import Task, registry
from r2med.errors import DataError, R2medError
from r2med.measure.metrics import Measure
from r2med.measure.score import positive, score
from r2med.pipeline.named_runs import select
from r2med.pipeline.registry import STAGES
from r2med.render.scores.report import parts_of
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import Machine
from r2med.runs.selection import check_data, each_once, require_all
from r2med.store.files import file_name, write_file

GROUPS: Mapping[str, str] = {"trec": "", "jsonl": "", "hydoc": "", "mteb": "full", "r2med": "full", "hakari": "nano"}
"""Every format, and of the formats of results the only group of tasks that it knows."""
Files = dict[str, bytes]


@dataclass(frozen=True)
class Target:
    """Folder of the files, and the name and revision of the system in them."""

    folder: Path
    name: str = ""  # what the model is called in them; empty for a name made of the system's spec
    revision: str = ""


def export(ledger: Ledger, names: Sequence[str], form: str, target: Target, tasks: Sequence[str] = ()) -> list[Path]:
    """Write the runs that are named by spec or id, and return the files; all of them or none."""
    group = GROUPS[form]
    only = f"the format {form} is for {group} tasks only"
    strange = [task for task in tasks if group and (task not in registry() or registry()[task].group != group)]
    if strange:
        raise R2medError(f"{only}, not for {', '.join(strange)}; --format trec takes any")
    selected = select(ledger, names, tasks)
    require_all(selected)
    entries = [entry for entry in each_once(selected) if group in ("", entry.group)]
    if not entries:
        systems = ", ".join(dict.fromkeys(entry.system for entry in each_once(selected)))
        raise R2medError(f"{only}, on which {systems} has no run; --format trec takes any")
    files: Files = {}
    for entry in entries:
        if group and entry.oracle:
            why = "was shown the answers (oracle): it is not a result, only its lists can be written"
            raise R2medError(f"run {entry.id} {why}")
        if form == "hydoc":
            files |= _generations(entry, ledger, files)
        else:
            files |= (_results if group else _lists)(entry, ledger.run(entry), form, target)
    for path, content in files.items():
        write_file(target.folder / path, content, parents=True)
    return [target.folder / path for path in files]


def _load_data(entry: Entry) -> Dataset:
    """Load the data of a run's task; refuse data that differs from that of the run."""
    dataset = load(entry.task)
    check_data(entry, dataset)
    return dataset


def _lists(entry: Entry, run: Run, form: str, target: Target) -> Files:
    """Return the ranked lists of a run as a file."""
    label = file_name(target.name or entry.system)
    path = f"{file_name(task_names([entry.task])[entry.task])}.{label}.{entry.id}.{form}"
    try:
        return {path: FORMATS[form].write(run, label)}
    except DataError as error:
        raise R2medError(f"run {entry.id} on {entry.task}: {error}; nothing was written, use --format jsonl") from error


def _generations(entry: Entry, ledger: Ledger, written: Files) -> Files:
    """Return the texts that expanders of a run wrote, in the layout of the benchmark."""
    from r2med.expand.replay import HYDOC, hydoc_rows  # brings the client of language models

    by_writer: dict[tuple[str, str], dict[str, list[Generation]]] = {}
    for query, texts in ledger.generations(entry).items():
        for text in texts:
            by_writer.setdefault((text.method, text.model), {}).setdefault(query, []).append(text)
    if not by_writer:
        raise R2medError(f"run {entry.id} of {entry.system}: no stage of it writes texts; nothing was written")
    files: Files = {}
    dataset = _load_data(entry)
    for writer, generations in by_writer.items():
        folder = "/".join(file_name(part) for part in (dataset.task.base, *writer) if part)
        path, rows = f"{folder}/{HYDOC}", hydoc_rows(dataset.collection.queries, generations)
        if written.get(path, rows) != rows:
            raise R2medError(f"two of these runs wrote different texts for {folder}; export one at a time")
        files[path] = rows
    return files


def _results(entry: Entry, run: Run, form: str, target: Target) -> Files:
    """Return the files in which another tool stores the results of a run."""
    longest = max((len(ranking.documents) for _, ranking in run), default=0)
    measures = {"mteb": mteb_measures(longest), "r2med": R2MED_MEASURES, "hakari": HAKARI_MEASURES}
    dataset = _load_data(entry)
    qrels = dataset.gold.qrels
    scores = score(run, qrels, measures[form])
    name = target.name or (entry.system if form == "r2med" else f"r2med/{file_name(entry.system)}")
    values = {measure: scores.mean(measure) for measure in scores.measures}
    measured = Measured(entry, dataset.task, values, name, target.revision)
    if form == "hakari":
        return hakari(measured, run, qrels)
    return mteb(measured) if form == "mteb" else authors(measured)


_SPELLED = {"nDCG": "ndcg", "MAP": "map", "MRR": "mrr", "Recall": "recall", "P": "precision", "Hit": "acc"}


@dataclass(frozen=True)
class Measured:
    """One run by the measures of a format, with the name and revision of its system in the file."""

    entry: Entry
    task: Task
    values: Mapping[Measure, float]
    name: str
    revision: str = ""


def _grid(names: Iterable[str], cutoffs: Sequence[int]) -> tuple[Measure, ...]:
    return tuple(Measure(name, cutoff) for name in names for cutoff in cutoffs)


# MTEB

_MTEB_CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
_MTEB_SPLIT = "test"


def mteb_measures(longest: int) -> tuple[Measure, ...]:
    """Return the measures of MTEB, with cutoffs down to the depth of the lists."""
    cutoffs = [cutoff for cutoff in _MTEB_CUTOFFS if cutoff <= 100 or longest >= cutoff]
    return _grid(("nDCG", "MAP", "Recall", "P", "MRR"), cutoffs)


def mteb_task(base: str) -> str:
    """Return the name of a task in MTEB.

    >>> mteb_task("MedXpertQA-Exam")
    'R2MEDMedXpertQAExamRetrieval'
    """
    return f"R2MED{base.replace('-', '')}Retrieval"


def mteb(measured: Measured) -> Files:
    """Return `MODEL/REVISION/TASK.json` and `model_meta.json`, as MTEB's cache and results repository have them."""
    entry, revision = measured.entry, measured.revision or f"r2med-{r2med.__version__}"
    folder = f"{measured.name.replace('/', '__').replace(' ', '_')}/{file_name(revision)}"
    scores = {_snake(measure): round(value, 6) for measure, value in measured.values.items()}
    content = {
        "dataset_revision": entry.record.data.revision or measured.task.revision,
        "task_name": mteb_task(measured.task.base),
        # Nothing of it was computed by mteb.
        "mteb_version": None,
        "scores": {
            _MTEB_SPLIT: [
                {**scores, "main_score": scores["ndcg_at_10"], "hf_subset": "default", "languages": ["eng-Latn"]}
            ]
        },
        "evaluation_time": entry.seconds,
        "kg_co2_emissions": None,
        "date": datetime.fromisoformat(entry.created).timestamp(),
    }
    meta = {
        "name": measured.name,
        "revision": revision,
        "languages": ["eng-Latn"],
        "framework": [],
        **dict.fromkeys(("release_date", "loader", "reference")),
        "r2med": {"system": entry.system, "version": entry.record.provenance.r2med},
    }
    return {f"{folder}/{content['task_name']}.json": _json(content), f"{folder}/model_meta.json": _json(meta)}


# The benchmark's authors

_AUTHORS_NAMES = {
    "Biology": "Stack-Biology", "Bioinformatics": "Stack-Bioinformatics", "Medical-Sciences": "Stack-Medical",
    "PMC-Treatment": "PMC-Treat", "PMC-Clinical": "PMCPatients", "IIYi-Clinical": "IIYiPatients-EN",
}  # fmt: skip
"""Tasks that have another name in the authors' result files."""
R2MED_MEASURES = (*_grid(("nDCG", "MAP", "Recall", "P"), (1, 3, 5, 10, 25, 50, 100)), Measure("MRR"))
"""What the authors' files hold, of dense systems and of BM25 together."""


def authors(measured: Measured) -> Files:
    """Return `SYSTEM/TASK.json` with the task's name in the authors' files, means with five digits."""
    task = _AUTHORS_NAMES.get(measured.task.base, measured.task.base)
    content = {
        "dataset_name": task,
        "evaluation_time": f"{measured.entry.seconds / 60:.2f} minutes",
        "model_name": measured.name,
        "test": {_snake(measure): round(value, 5) for measure, value in measured.values.items()},
    }
    return {f"{file_name(measured.name)}/{task}.json": _json(content)}


# HAKARI-Bench

HAKARI_MEASURES = (
    *_grid(("nDCG", "Recall"), (10, 100)), *_grid(("Hit",), (1, 10, 100)), Measure("MRR", 10), Measure("MAP", 100),
)  # fmt: skip
"""What HAKARI-Bench shows."""
_HAKARI_DEPTH = 100
_HAKARI_SET = "NanoR2MED"
_HAKARI_SCORE = "score"
_HAKARI_HEADLINE = Measure("nDCG", 10)
_BM25, _FUSION = "r2med.retrieve.bm25", "r2med.retrieve.fusion"


def hakari(measured: Measured, run: Run, qrels: Qrels) -> Files:
    """Return `MODEL/DATASET/TASK.json.xz`: figures, and the lists and judgements that the tool measures again from.

    It averages over the queries that it is given lists of, so every judged query has one, be it an empty one.
    """
    judged = positive(qrels)
    payload = _hakari_payload(measured)
    ranking = {"name": "base", "ranking_kind": "retrieval", "embedding_variant_name": None, "distance": None}
    # The documents are last, as the tool decides by the others whether to read them.
    rankings = [
        {
            **ranking,
            "score_name": _HAKARI_SCORE,
            "query_id": query,
            "corpus_ids": list(run[query].documents[:_HAKARI_DEPTH]) if query in run else [],
        }
        for query in judged
    ]
    payload["artifacts"] = {
        "top_rankings": {
            "schema_version": 2,
            "generated_at_utc": measured.entry.created,
            "top_k": _HAKARI_DEPTH,
            "target": payload["target"],
            "qrels": [
                {"query_id": query, "relevant_corpus_ids": sorted(relevant)} for query, relevant in judged.items()
            ],
            "rankings": rankings,
        }
    }
    parts = {name: payload[name] for name in ("model", "target", "config", "environment")}
    fingerprint = hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
    payload["experiment_manifest"] = {"schema_version": 2, "fingerprint_sha256": fingerprint}
    path = "/".join(map(_hakari_part, (measured.name, measured.task.hub, measured.task.split)))
    return {f"{path}.json.xz": lzma.compress(orjson.dumps(payload))}


def _hakari_payload(measured: Measured) -> dict[str, Any]:
    entry, task = measured.entry, measured.task
    versions = entry.record.provenance
    machine = versions.machine or Machine()
    return {
        "generated_at_utc": entry.created,
        "model": {
            "method": _hakari_method(entry),
            "id": measured.name,
            "source": {"type": "r2med", "name": entry.system, "revision": measured.revision or None},
            "backend_library": f"r2med {versions.r2med or ''}".strip(),
        },
        "environment": {
            "python": versions.python,
            "platform": " ".join(filter(None, (machine.platform, machine.architecture))) or None,
            "package_versions": dict(versions.packages or {}),
        },
        "target": {
            "dataset_name": _HAKARI_SET,
            "dataset_id": task.hub,
            "dataset_revision": {
                "requested": task.revision or None,
                "resolved": entry.record.data.revision or None,
                "source": "huggingface_hub",
            },
            "split_name": task.split,
            "task_name": task.split,
            **{f"{part}_config": part for part in ("corpus", "queries", "qrels")},
            "candidate_config": None,
        },
        "config": {"primary_metric": _at(_HAKARI_HEADLINE)},
        "evaluation": _hakari_evaluation(measured),
        "metrics": {
            f"{_HAKARI_SET}_{task.split}_{_HAKARI_SCORE}_{_at(measure)}": value
            for measure, value in measured.values.items()
        },
        "rerank_metrics": {},
    }


def _hakari_evaluation(measured: Measured) -> dict[str, Any]:
    seconds, finished = measured.entry.seconds, datetime.fromisoformat(measured.entry.created)
    return {
        "started_at_utc": (finished - timedelta(seconds=seconds)).isoformat(),
        **dict.fromkeys(("finished_at_utc", "evaluated_at_utc"), finished.isoformat()),
        **dict.fromkeys(("duration_seconds_excluding_dataset_load", "wall_seconds"), seconds),
        "aggregate_metric": _at(_HAKARI_HEADLINE),
        "aggregate_metric_value": measured.values[_HAKARI_HEADLINE],
        "cache_hit": False,
        "timing": {"pure_compute_seconds": seconds},
        "embedding_evaluations": [],
        "reranking_evaluations": [],
    }


def _hakari_method(entry: Entry) -> str:
    """Return the kind of model, by which that tool chooses its views.

    It shows a `reranker` only where it reordered the tool's own candidates, and takes `bm25` for the baseline of those,
    so a whole system goes by what it searches with, and only BM25 by itself is called that.
    """
    parts = parts_of(entry.record.stages or ())
    homes = {STAGES.get(name, "").partition(":")[0] for name in parts.retrievers} - {_FUSION}
    if homes != {_BM25}:
        return "dense"
    return "bm25" if parts.kind == "base" else "sparse"


def _hakari_part(text: str) -> str:
    """Return a name as a folder or file, the way that tool makes one.

    >>> _hakari_part(" me/my model/ "), _hakari_part("..")
    ('me__my_model', 'value')
    """
    plain = text.strip().strip("/\\").replace("\\", "/").replace("/", "__")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", plain).strip("._") or "value"


def _snake(measure: Measure) -> str:
    name = _SPELLED[measure.name]
    return name if measure.cutoff is None else f"{name}_at_{measure.cutoff}"


def _at(measure: Measure) -> str:
    return f"{_SPELLED[measure.name]}@{measure.cutoff}"


def _json(content: Mapping[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
