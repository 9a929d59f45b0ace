"""The held-out part, measured as everything else is: ranked lists, our measures, intervals over questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from r2med.data.run import Run
from r2med.measure.bootstrap import Interval, task_intervals
from r2med.measure.metrics import Measure, parse_all
from r2med.measure.score import QueryScores, score
from r2med.train.run_settings import LATE, RERANKER, DevSettings
from r2med.train.trainer_rows import TrainerRow, passages_of_rows

_DEPTH = 100


class DevTask:
    """Held-out questions and the passages that they search.

    A retriever searches all passages; a reranker puts the judged ones of each question in order.
    """

    def __init__(self, rows: Sequence[TrainerRow], others: Sequence[TrainerRow], settings: DevSettings) -> None:
        self.rows, self.measures = rows, parse_all(settings.measures)
        found = passages_of_rows(rows)
        for name, text in passages_of_rows(others).items():
            if len(found) >= settings.passages:
                break
            found.setdefault(name, text)
        self.passages = found
        self.qrels = {row.id: {each.id: 1 for each in row.positives} for row in rows}

    def measure(self, model: Any, kind: str) -> QueryScores:
        """How well a model does now."""
        run = self._rerank(model) if kind == RERANKER else self._search(model, kind)
        return score(run, self.qrels, self.measures)

    def _search(self, model: Any, kind: str) -> Run:
        quiet = {"show_progress_bar": False, **({} if kind == LATE else {"convert_to_tensor": True})}
        queries = model.encode_query([row.query for row in self.rows], **quiet)
        documents = model.encode_document(list(self.passages.values()), **quiet)
        table = np.asarray(model.similarity(queries, documents).float().cpu())
        names = list(self.passages)
        lists = {}
        for row, scores in zip(self.rows, table, strict=True):
            best = np.argsort(-scores, kind="stable")[:_DEPTH]
            lists[row.id] = ([names[place] for place in best], scores[best])
        return Run.from_lists(lists)

    def _rerank(self, model: Any) -> Run:
        lists = {}
        for row in self.rows:
            judged = {each.id: each.text for each in (*row.positives, *row.negatives)}
            scores = model.predict([(row.query, text) for text in judged.values()], show_progress_bar=False)
            lists[row.id] = (list(judged), np.asarray(scores, dtype=np.float32).reshape(-1))
        return Run.from_lists(lists)


def intervals(scores: QueryScores) -> dict[str, Interval]:
    """The mean of each measure with its interval over questions."""
    return {str(measure): task_intervals(scores.values(measure))[0] for measure in scores.measures}


def make_evaluator(task: DevTask, kind: str) -> Any:
    """The task as the trainers call it."""
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

    class DevEvaluator(SentenceEvaluator):  # type: ignore[misc]
        """Measures the held-out part while a model is trained."""

        primary_metric = _key(task.measures[0])

        def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
            found = task.measure(model, kind)
            return {_key(measure): found.mean(measure) for measure in found.measures}

    return DevEvaluator()


def _key(measure: Measure) -> str:
    return f"dev_{measure}"
