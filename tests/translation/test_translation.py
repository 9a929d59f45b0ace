"""Questions in other languages: gates as properties, planted faults that each gate must catch, drops by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from building import TASK, part, sample
from r2med.cli.main import app
from r2med.data.loader import load
from r2med.data.validate import validate
from r2med.errors import R2medError
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.runs.ledger import Ledger
from r2med.translation.gates import codes, drug_names, find_problems, language, quantities
from r2med.translation.translator import TranslationSettings

# ------------------------------------------------------------------------------------------------ the gates

DOSES = {
    "es": {
        "mg": "mg",
        "mL": "mililitros",
        "mcg": "microgramos",
        "g": "g",
        "%": " %",
        "mm Hg": "mmHg",
        "kg": "kilogramos",
    },
    "fr": {
        "mg": "milligrammes",
        "mL": "mL",
        "mcg": "µg",
        "g": "g",
        "%": "\u202f%",
        "mm Hg": "mm de mercure",
        "kg": "kg",
    },
    "zh": {"mg": "毫克", "mL": "毫升", "mcg": "微克", "g": "克", "%": "％", "mm Hg": "毫米汞柱", "kg": "千克"},
}
FRAMES = {"es": "¿Bastan {} para tratarla?", "fr": "Est-ce que {} suffisent ?", "zh": "给予{}是否足够？"}
NUMBERS = st.one_of(
    st.integers(1, 9_999_999).map(float),
    st.integers(1, 99_999).map(lambda n: n / 10),
    st.integers(1, 999).map(lambda n: n / 100),
)


def english(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,}"


def written(value: float, code: str, spaced: bool) -> str:
    """A number as a language writes it: decimal commas, thousands by spaces or points, digits of full width."""
    text = english(value)
    if code == "zh":
        return text.translate(str.maketrans("0123456789", "０１２３４５６７８９")) if spaced else text
    mark = "\u202f" if spaced else "."
    return text.replace(",", "_").replace(".", ",").replace("_", mark)


@given(NUMBERS, st.sampled_from(sorted(DOSES)), st.sampled_from(sorted(DOSES["es"])), st.booleans())
def test_a_dose_survives_in_every_way_that_a_language_writes_it(value, code, unit, spaced):
    original = f"Is a dose of {english(value)}{'' if unit == '%' else ' '}{unit} enough to treat her?"
    told = FRAMES[code].format(f"{written(value, code, spaced)} {DOSES[code][unit]}")
    assert find_problems(original, told, language(code)) == []


@given(NUMBERS, NUMBERS, st.sampled_from(sorted(DOSES)), st.booleans())
def test_another_number_is_always_found(value, other, code, spaced):
    # What is written as 1.200 may be meant either way; only what no reading gives is another number.
    assume(other not in (value, value * 1000, value / 1000))
    told = FRAMES[code].format(f"{written(other, code, spaced)} {DOSES[code]['mg']}")
    found = find_problems(f"Is a dose of {english(value)} mg enough to treat her?", told, language(code))
    assert "numbers" in {problem.gate for problem in found}


@given(NUMBERS, st.sampled_from(sorted(DOSES)), st.permutations(sorted(DOSES["es"])))
def test_another_unit_is_always_found(value, code, units):
    told = FRAMES[code].format(f"{written(value, code, False)} {DOSES[code][units[1]]}")
    found = find_problems(f"Is a dose of {english(value)} {units[0]} enough to treat her?", told, language(code))
    assert [problem.gate for problem in found] == ["units"]


DRUGS = {
    "metformin": ("metformina", "metformine"),
    "hydrochlorothiazide": ("hidroclorotiazida", "hydrochlorothiazide"),
    "amoxicillin": ("amoxicilina", "amoxicilline"),
    "acetaminophen": ("paracetamol", "paracétamol"),
    "phenytoin": ("fenitoína", "phénytoïne"),
    "cyclophosphamide": ("ciclofosfamida", "cyclophosphamide"),
    "ciprofloxacin": ("ciprofloxacino", "ciprofloxacine"),
    "aspirin": ("ácido acetilsalicílico", "aspirine"),
}


@pytest.mark.parametrize("drug", DRUGS)
def test_names_of_drugs_survive_in_the_spelling_of_the_language(drug):
    assert drug_names(f"She takes {drug.title()} since April.") == [drug]
    original = f"Would {drug} explain the rash that she has had for weeks?"
    spanish, french = DRUGS[drug]
    assert find_problems(original, f"¿Podría {spanish} explicar su erupción?", language("es")) == []
    assert find_problems(original, f"La {french} explique-t-elle cette éruption ?", language("fr")) == []
    assert find_problems(original, f"{drug}能否解释她持续数周的皮疹？", language("zh")) == []
    for other in set(DRUGS) - {drug}:
        found = find_problems(original, f"¿Podría {DRUGS[other][0]} explicar su erupción?", language("es"))
        assert [problem.what for problem in found] == [f"{drug} is missing"]


def test_words_for_numbers_codes_powers_and_what_was_not_translated():
    zh, es = language("zh"), language("es")
    assert find_problems("Fever for 3 days, 12,000 cells, 50% of them", "发热三天，1.2万个细胞，其中百分之50", zh) == []
    assert find_problems("Two episodes in 35 weeks", "35周内发作2次", zh) == []
    assert find_problems("It lasted two weeks", "Duró 2 semanas", es) == []
    assert find_problems("It lasted weeks", "Duró 2 semanas", es) != []
    assert find_problems("Platelets 98,000/mm3 and 10⁹ cells", "Plaquetas 98.000/mm³ y 10⁹ células", es) == []
    assert find_problems("Is B12 low, and HbA1c 7%?", "¿La vitamina B12 es baja y la HbA1c del 7 %?", es) == []
    assert [p.what for p in find_problems("Is B12 low?", "¿La vitamina es baja?", es)] == ["b12 is missing"]
    assert [p.gate for p in find_problems("Why is iron so low in her blood?", "Why is iron so low in blood?", es)] == [
        "language"
    ]
    assert [p.gate for p in find_problems("Why is it low?", "¿Por qué es baja?", zh)] == ["language"]
    assert find_problems("Glucose 61 mg/dL", "Glucosa 61 mg/L", es) != []
    assert codes("type-2 diabetes, stage-3, COVID-19, p53") == ["covid-19", "p53"]
    assert [q.unit for q in quantities("5 mg, 3-day, 27-year-old, 10 m", es)] == ["mg", "day", "year", "m"]
    with pytest.raises(R2medError, match=r"unknown language 'sp'"):
        language("sp")


@pytest.mark.parametrize(
    ("original", "told", "code"),
    [
        ("Give 5 mg/kg of it?", "¿Dar 5 mg/kg?", "es"),
        ("Give 5 mg/kg of it?", "¿Dar 5 mg por kg?", "es"),
        ("Give 5 mg per kg of it?", "¿Dar 5 mg/kg?", "es"),
        ("Give 5 mg/kg of it?", "Faut-il en donner 5 mg par kilogramme ?", "fr"),
        ("Give 5 mg/kg of it?", "是否每公斤给予5毫克？", "zh"),
        ("Give 5 mg/kg/day of it?", "¿Dar 5 mg/kg al día?", "es"),
        ("Give 5 mg/kg/day of it?", "Soll man 5 mg/kg täglich geben?", "de"),
        ("Give 5 mg daily?", "¿Dar 5 mg/día?", "es"),
        ("Is 10-20 mg/kg enough?", "¿Bastan de 10 a 20 mg/kg?", "es"),
        ("Glucose 61 mg/dL in a child of 12 kg", "Glucosa de 61 mg por decilitro en un niño de 12 kg", "es"),
        ("A base excess of -5 mmol/L?", "¿Un exceso de base de −5 mmol/L?", "es"),
        ("A base excess of -5 mmol/L?", "¿Un exceso de base de menos 5 mmol/L?", "es"),
        ("A base excess of -5 mmol/L?", "碱剩余为负5毫摩尔/升吗？", "zh"),
        ("At least 5 mg?", "¿Al menos 5 mg?", "es"),
        ("From 5 mg -10 mg?", "¿De 5 mg a 10 mg?", "es"),
    ],
)
def test_a_dose_by_weight_and_a_negative_number_survive_in_every_way_of_saying_them(original, told, code):
    assert [problem for problem in find_problems(original, told, language(code)) if problem.gate != "language"] == []


@pytest.mark.parametrize(
    ("original", "told", "problem"),
    [
        ("Give 5 mg/kg of it?", "¿Dar 5 mg?", ("units", "5 mg/kg became 5 mg")),
        ("Give 5 mg/kg to a child of 70 kg?", "¿Dar 5 mg a un niño de 70 kg?", ("units", "5 mg/kg became 5 mg")),
        ("Give 5 mg per kg of it?", "¿Dar 5 mg?", ("units", "5 mg/kg became 5 mg")),
        ("Give 5 mg/kg/day of it?", "¿Dar 5 mg/kg?", ("units", "5 mg/kg/day became 5 mg/kg")),
        ("Give 5 mg of it?", "¿Dar 5 mg/kg?", ("units", "5 mg became 5 mg/kg")),
        ("Give 5 mg/kg, then 8 mg/kg?", "¿Dar 5 mg y luego 8 mg/kg?", ("units", "5 mg/kg became 5 mg")),
        ("A base excess of -5?", "¿Un exceso de base de 5?", ("numbers", "-5 is missing")),
        ("A base excess of 5?", "¿Un exceso de base de -5?", ("numbers", "5 is missing")),
    ],
)
def test_a_lost_divisor_and_a_lost_sign_are_stopped(original, told, problem):
    assert tuple(find_problems(original, told, language("es"))[0]) == problem


PLANTED = [
    ("Is 5 mg of it enough?", "¿Bastan 50 mg?", "numbers"),
    ("Is 2.5 mg of it enough?", "¿Bastan 25 mg?", "numbers"),
    ("Is 0.3 mg of it enough?", "¿Bastan 0,03 mg?", "numbers"),
    ("Is a value of -5 normal?", "¿Es normal un valor de 5?", "numbers"),
    ("Is 5 mcg of it enough?", "¿Bastan 5 mg?", "units"),
    ("Is it well after 5 days?", "¿Está bien tras 5 semanas?", "units"),
    ("Is 5 mmol/L normal?", "¿Es normal 5 mg/dL?", "units"),
    ("Is 38 °C normal?", "¿Es normal 38 °F?", "units"),
    ("Is 90% normal?", "¿Es normal 90 mmHg?", "units"),
    ("Is 5 mg/kg enough?", "¿Bastan 5 mg?", "units"),
    ("Is 5 mg/kg/day enough?", "¿Bastan 5 mg/kg?", "units"),
    ("Would metformin help?", "¿Ayudaría?", "names"),
    ("Would metformin help?", "¿Ayudaría la insulina?", "names"),
    ("Is B12 low?", "¿Está baja la B6?", "names"),
    ("Is it not the left lung?", "¿Es el pulmón izquierdo?", ""),
    ("Is it the left lung?", "¿Es el pulmón derecho?", ""),
    ("Is a value > 5 normal?", "¿Es normal un valor < 5?", ""),
    ("Start metformin and stop ramipril?", "¿Suspender metformina e iniciar ramipril?", ""),
    ("Metformin 5 mg and ramipril 9 mg?", "¿Metformina 9 mg y ramipril 5 mg?", ""),
    ("Twice a day for three weeks?", "¿Tres veces al día durante dos semanas?", ""),
]
"""Errors as the page lists them, with the gate that stops them; none where only a judge can."""


@pytest.mark.parametrize(("original", "told", "gate"), PLANTED)
def test_rules_stop_planted_errors_of_figures_units_and_names_and_no_others(original, told, gate):
    gates = {problem.gate for problem in find_problems(original, told, language("es"))}
    assert gate in gates if gate else not gates


# ------------------------------------------------------------------------------------------------ end to end

KEEP = re.compile(r"[A-Za-z]+")


def mirrored(text: str) -> str:
    """A language that nobody speaks: every word backwards but units, codes and drugs, so that it can be undone."""
    kept = {*drug_names(text), *codes(text), "kg", "mg", "dl", "meq", "mm", "hg", "ng", "ml", "cm", "u", "g", "l"}
    kept |= {"year", "years", "day", "days", "week", "weeks", "month", "months", "hour", "hours", "minute", "units"}
    return KEEP.sub(lambda w: w[0] if w[0].lower() in kept else w[0][::-1], text)


class Interpreter:
    """Translates into mirrored words, with a fault planted in some questions."""

    def __init__(self, faults: dict[str, str]) -> None:
        self.texts = dict(sample().collection.queries)
        self.ids = {" ".join(text.split()): name for name, text in self.texts.items()}
        self.faults, self.asked = faults, 0
        add_model(scripted(self._answer, "interpreter"))

    def _answer(self, request: Request) -> str:
        self.asked += 1
        prompt = request.messages[-1].content
        if prompt.startswith("Translate this medical question from English"):
            return self._forth(part(prompt, "Question:"), request.sample)
        if prompt.startswith("Translate this"):
            return self._back(part(prompt, "Question:"))
        second = part(prompt, "Second:")
        return json.dumps({"same": "never had any of this" not in second, "difference": "the history is gone"})

    def _forth(self, question: str, attempt: int) -> str:
        fault = self.faults.get(self.ids[" ".join(question.split())], "")
        text = mirrored(question)
        if fault == "dose" or (fault == "once" and attempt < 100):
            text = re.sub(r"\d+", lambda n: str(int(n[0]) + 1), text, count=1)
        if fault == "unit":
            text = text.replace(" kg", " g")
        if fault == "drug":
            text = text.replace("amoxicillin", "a drug")
        if fault == "refusal":
            return "I'm sorry, but I can't help with medical questions."
        if fault == "bare prose":
            return f"Here you are: {text}"
        reply = json.dumps({"translation": text})
        return (
            f"Of course! Here is the translation:\n{reply}\nLet me know if you need more."
            if fault == "prose"
            else reply
        )

    def _back(self, text: str) -> str:
        back = next((original for original in self.texts.values() if mirrored(original) == text), mirrored(text))
        fault = self.faults.get(self.ids.get(" ".join(back.split()), ""), "")
        if fault == "meaning":
            back = f"She never had any of this: {back}"
        if fault == "far":
            back = "How are bonds priced when rates rise?"
        return json.dumps({"translation": back})


FAULTS = {
    "mqd-q01": "dose", "mqd-q02": "unit", "mqd-q03": "refusal", "mqd-q04": "prose", "mqd-q05": "drug",
    "mqd-q06": "bare prose", "mqd-q07": "meaning", "mqd-q08": "far", "mqd-q09": "once",
}  # fmt: skip
CAUGHT = {
    "mqd-q01": "numbers", "mqd-q02": "units", "mqd-q03": "unread", "mqd-q05": "names", "mqd-q06": "unread",
    "mqd-q07": "meaning", "mqd-q08": "similarity",
}  # fmt: skip


def call(*arguments, code: int = 0):
    found = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert found.exit_code == code, (found.output, found.exception)
    return found


def translate(out: Path, *more, code: int = 0):
    return call("build", "translate", f"sample/{TASK}", "--llm", "interpreter", "--out", out, *more, code=code)


def rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_every_gate_catches_its_fault_and_nothing_is_asked_twice(tmp_path):
    model = Interpreter(FAULTS)
    foreseen = json.loads(translate(tmp_path / "t", "--to", "es", "--dry-run", "--json").stdout)
    assert (model.asked, foreseen[0]["requests"]) == (0, 27)
    said = json.loads(translate(tmp_path / "t", "--to", "es", "--json").stdout)
    es = said["languages"][0]
    assert es["gates"] == {gate: list(CAUGHT.values()).count(gate) for gate in sorted(set(CAUGHT.values()))}
    assert (es["questions"], es["passed"], es["kept"]) == (9, 2, 2)
    assert es["spent"]["requests"] == model.asked
    every = {row["id"]: row for row in rows(tmp_path / "t" / "es" / "translations.jsonl")}
    assert {name: row["problems"][0]["gate"] for name, row in every.items() if row["problems"]} == CAUGHT
    made, source = load(tmp_path / "t" / "es"), sample()
    assert sorted(made.collection.queries.ids) == ["mqd-q04", "mqd-q09"]
    assert made.collection.documents.fingerprint == source.collection.documents.fingerprint
    assert all(made.gold.qrels[name] == source.gold.qrels[name] for name in made.collection.queries.ids)
    assert all(made.gold.answers[name] == source.gold.answers[name] for name in made.collection.queries.ids)
    assert validate(tmp_path / "t" / "es").errors == 0
    # The same command again, another rule for what fails, a further language: only what could not be read is asked for
    # again, two questions with two attempts of three readings each.
    asked = model.asked
    done = translate(tmp_path / "t", "--to", "es", "--failed", "mark")
    shown = done.stdout
    # A model that drops a negation also calls its own work the same.
    assert "judges its own translations; name another model by --judge" in done.stderr
    assert "judged its own translations" in (tmp_path / "t" / "es" / "README.md").read_text()
    assert model.asked == asked + 12
    assert "mqd-q05 stopped by names: amoxicillin is missing" in shown
    marked = rows(tmp_path / "t" / "es" / "query.jsonl")
    assert {row["id"]: row.get("gate") for row in marked if row.get("gate")} == {
        name: gate for name, gate in CAUGHT.items() if gate != "unread"
    }
    translate(tmp_path / "t", "--to", "fr")
    documents = [tmp_path / "t" / code / "corpus.jsonl" for code in ("es", "fr")]
    assert documents[0].samefile(documents[1])


@pytest.mark.parametrize(
    ("judge", "itself"),
    [("", True), ("gpt-4o", True), ("gpt-4o-2024-11-20@http://localhost:8000/v1", True), ("gpt-4.1", False)],
)
def test_a_translator_is_known_as_its_own_judge_by_any_of_its_names(judge, itself):
    assert TranslationSettings("gpt-4o", judge).judges_itself == itself


def test_what_a_language_costs_is_paired_over_the_questions_that_both_have(tmp_path):
    Interpreter({"mqd-q03": "refusal"})
    out = tmp_path / "t"
    translate(out, "--to", "es,fr")
    source = f"sample/{TASK}"
    call("run", "bm25", "wordllama", "--tasks", source, out)
    drops = json.loads(call("compare", "bm25", "wordllama", "--languages", "--tasks", out, "--json").stdout)
    assert [(drop["system"], drop["language"]) for drop in drops] == [
        (system, code) for system in ("bm25", "wordllama") for code in ("es", "fr")
    ]
    with Ledger() as ledger:
        by_task = {
            (e.system, e.task): dict(zip(e.queries, ledger.scores(e)["nDCG@10"], strict=True)) for e in ledger.entries()
        }
    for drop in drops:
        before, after = by_task[drop["system"], source], by_task[drop["system"], drop["task"]]
        shared = [query for query in before if query in after]
        assert (len(shared), drop["left_out"], drop["difference"]["queries"]) == (8, 1, 8)
        assert drop["before"] == pytest.approx(sum(before[q] for q in shared) / 8)
        assert drop["difference"]["mean"] == pytest.approx(sum(after[q] - before[q] for q in shared) / 8)
    assert any(drop["difference"]["mean"] < 0 for drop in drops)
    board = json.loads(call("board", "--tasks", out, "--format", "json").stdout)
    assert {(d["system"], d["language"], d["after"]) for d in board["drops"]} == {
        (d["system"], d["language"], d["after"]) for d in drops
    }
    shown = call("board", "--tasks", out).stdout
    assert "in other languages, paired by question" in shown
    assert f"{100 * drops[0]['difference']['mean']:+.2f}" in shown
    assert "drops" not in json.loads(call("board", "--group", "sample", "--format", "json").stdout)


def test_what_cannot_be_translated_is_one_line(tmp_path):
    Interpreter({})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for arguments, words in (
        ((tmp_path / "x", "--to", "es,xx"), "unknown language 'xx'"),
        ((tmp_path / "full", "--to", "es"), "was not made by r2med build translate"),
        ((tmp_path / "x", "--to", "es", "--encoder", "bm25"), "is not an encoder"),
    ):
        error = translate(*arguments, code=1).exception
        assert isinstance(error, R2medError)
        assert words in str(error)
        assert "\n" not in str(error)
    assert "needs a language" in translate(tmp_path / "x", "--to", ",", code=2).stderr
    error = call("compare", "bm25", "--languages", "--tasks", "sample/Biology", code=1).exception
    assert "none of these tasks is a translation" in str(error)
    assert "--languages needs --tasks" in call("compare", "bm25", "--languages", code=2).stderr
