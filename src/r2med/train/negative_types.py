"""Why a negative is wrong: the writer chooses one of the types that the settings name."""

from __future__ import annotations

from functools import partial

from r2med.build.item_store import Outcome
from r2med.build.judging import Pair
from r2med.build.question_steps import tries
from r2med.build.step_runner import AskedModel, Asking, Step, step_key
from r2med.llm import Request, find_model
from r2med.llm.reading import read_class
from r2med.models.prompts import bundled
from r2med.train.data_settings import DataSettings

STEP = "type"
UNTYPED = ""
"""The type of a negative that nobody was asked about, or that no reply could be read for."""


def typing_step(settings: DataSettings) -> Step[Pair]:
    """The step that types pairs of a question and a passage that is no evidence for it."""
    model, names = _model(settings), [name for name, _ in settings.negatives.named]

    def work(pair: Pair) -> Asking:
        request = _request(model, settings, pair)
        found = yield from tries(model, request, partial(read_class, classes=names))
        marks = () if found else ("no type could be read",)
        return Outcome({"type": found or UNTYPED}, marks=marks)

    def key(pair: Pair) -> str:
        return step_key(STEP, request=_request(model, settings, pair).key())

    return Step(STEP, lambda pair: pair.id, key, work=work)


def foresee_typing(settings: DataSettings, pair: Pair) -> list[Request]:
    """What is asked about a pair."""
    return [_request(_model(settings), settings, pair)]


def _model(settings: DataSettings) -> AskedModel:
    return AskedModel.of(settings.writer, find_model(settings.writer), settings.ask.max_tokens)


def _request(model: AskedModel, settings: DataSettings, pair: Pair) -> Request:
    question = pair.question
    values = {
        "types": "\n".join(f"- {name}: {text}" for name, text in settings.negatives.named),
        "question": question.text,
        "answer": question.answer,
        "bridge": question.reasoning or "(not given)",
        "passage": pair.passage.shown,
    }
    return model.request(bundled("type_negative", "r2med.train").fill(values))
