"""A translated task as a folder: its own questions, the corpus of its source, and a file that describes it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import orjson

from r2med.data.dataset import Dataset
from r2med.data.layout import locate
from r2med.data.loader import load
from r2med.data.manifests import TRANSLATION
from r2med.data.problems import Findings
from r2med.errors import R2medError
from r2med.llm.items import STORE
from r2med.render.html import render_card
from r2med.store.files import draft_folder, unwritable
from r2med.store.typed import json_lines
from r2med.translation.translator import TranslatedTask, TranslationSettings

_FORMAT = 1


def check_place(out: Path) -> None:
    """Refuse a folder that holds something else."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / STORE).is_file())):
        raise R2medError(f"{out}: exists and was not made by r2med build translate; name another --out")


def write_translation(out: Path, source: Dataset, translated: TranslatedTask, settings: TranslationSettings) -> Path:
    """Write the task of a language into its folder below `out`, as a whole, replacing an earlier one."""
    folder = out / translated.spoken.code
    try:
        with draft_folder(out, folder.name) as draft:
            _copy_documents(source, draft, out, translated.spoken.code)
            for name, content in _files(source, translated, settings).items():
                (draft / name).write_bytes(content)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    if load(folder).collection.documents.fingerprint != source.collection.documents.fingerprint:
        raise R2medError(f"{folder}: its documents are not those of {source.name}; were they changed meanwhile?")
    return folder


def _copy_documents(source: Dataset, draft: Path, out: Path, code: str) -> None:
    """Copy the files of the corpus once; further languages link to them if the file system can."""
    origin = source.collection.origin
    if origin is None:
        rows = ({"id": name, "text": text} for name, text in source.collection.documents)
        (draft / "corpus.jsonl").write_bytes(json_lines(rows))
        return
    others = [path for path in sorted(out.iterdir()) if path.name != code and (path / TRANSLATION).is_file()]
    for file in locate(origin, source.task.split, Findings(), source.task.files).documents:
        base = file.rpartition("/")[2]
        name = file if file.startswith("corpus") else base if base.startswith("corpus.") else f"corpus/{base}"
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        size = (origin / file).stat().st_size
        twins = (path / name for path in others if (path / name).is_file() and (path / name).stat().st_size == size)
        try:
            os.link(next(twins), draft / name)
        except (OSError, StopIteration):
            shutil.copyfile(origin / file, draft / name)


def _files(source: Dataset, translated: TranslatedTask, settings: TranslationSettings) -> dict[str, bytes]:
    facts = {
        "format": _FORMAT,
        "source": source.name,
        "revision": source.revision,
        "fingerprints": {
            "documents": source.collection.documents.fingerprint,
            "queries": source.collection.queries.fingerprint,
            "gold": source.gold.fingerprint,
        },
        "model": settings.model,
        "judge": settings.judge or settings.model,
        **{name: getattr(settings, name) for name in ("encoder", "near", "attempts", "failed")},
        **translated.as_dict(),
    }
    card = render_card("translation/card.md", **facts, judged_by_itself=settings.judges_itself)
    stated = {name: value for name in source.task.STATED if (value := getattr(source.task, name))}
    gold = {"answer": source.gold.answers, "reasoning": source.gold.reasoning}  # in the language of the corpus
    qrels = (
        {"q_id": question.id, "p_id": document, "score": grade}
        for question in translated.kept
        for document, grade in source.gold.qrels[question.id].items()
    )
    return {
        "query.jsonl": json_lines(
            {"id": q.id, "text": q.text, "original": q.original}
            | {name: texts[q.id] for name, texts in gold.items() if q.id in texts}
            | ({"gate": q.problems[0][0]} if q.problems else {})
            for q in translated.kept
        ),
        "qrels.jsonl": json_lines(qrels),
        "translations.jsonl": json_lines(
            {
                "id": q.id,
                "original": q.original,
                "translation": q.text,
                "back": q.back,
                "similarity": q.similarity,
                "problems": [{"gate": gate, "what": what} for gate, what in q.problems],
            }
            for q in translated.questions
        ),
        "task.toml": "".join(f"{name} = {orjson.dumps(value).decode()}\n" for name, value in stated.items()).encode(),
        TRANSLATION: orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n",
        "README.md": f"{card}\n".encode(),
    }
