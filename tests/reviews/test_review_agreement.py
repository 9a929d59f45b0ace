"""What a review says about its reviewers and about the labels: the same figure everywhere, from the right items."""

from __future__ import annotations

import json
import re
from pathlib import Path

import krippendorff
import numpy as np
import pytest
from click.testing import CliRunner
from ppi_py import ppi_mean_ci
from sklearn.metrics import cohen_kappa_score

from r2med.cli.main import app
from r2med.render.sections import latex_sections, markdown_sections
from r2med.reviews.agreement import Votes, estimate_labels, missed_share, review_agreement
from r2med.reviews.batches import Dealer
from r2med.reviews.rows import DraftDecision, ReviewItem, ReviewProject, ReviewQuestion, Ruling
from r2med.reviews.sampling import ReviewSettings, new_review
from r2med.reviews.scale import DEFAULT_GUIDELINE, DEFAULT_SCALE
from r2med.reviews.store import ReviewStore, create_review
from r2med.reviews.tables import BREAKDOWNS, agreement_sections
from r2med.runs.ledger import Ledger
from reviewing import make_project


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output
    return done.stdout


def graded(name: str = "pilot", *, odd: int = 40) -> ReviewStore:
    """60 random items and some that are odd, of which two people say the opposite; a model judges them all."""
    chance = np.random.default_rng(3)
    questions = [ReviewQuestion(n, "made-up", f"q{n}", f"Why {'so ' * n}{n}?") for n in range(1, 21)]
    items = [
        ReviewItem(n, 1 + n % 20, f"d{n}", "Some words. " * (n % 9 + 1), "random" if n <= 60 else "holes", True,
                   3 if n % 10 == 0 else None, {"label": int(n % 3 == 0), "ranks": {"bm25": n % 16 + 1}})
        for n in range(1, 61 + odd)
    ]  # fmt: skip
    head = (name, "2026-01-01", ("made-up",), {"made-up": "x"}, "mixed", {"random": 1000, "holes": 50})
    store = create_review(ReviewProject(*head, DEFAULT_SCALE, DEFAULT_GUIDELINE, 1.0, 0.0, 0), questions, items)
    truth = {n: int(chance.integers(4)) for n in range(1, 101)}
    off = {
        person: {n: int(chance.integers(4)) if chance.random() < 0.3 else grade for n, grade in truth.items()}
        for person in ("Ada", "Ben")
    }
    for person, grades in off.items():
        said = {n: (grade if n <= 60 else 3 * (person == "Ada")) for n, grade in grades.items() if n % 4 or n > 60}
        drafts = [(n, DraftDecision("graded", grade)) for n, grade in said.items() if n <= len(items)]
        store.record_all(store.add_reviewer(person).id, drafts)
    model = [(item.number, DraftDecision("graded", truth[item.number])) for item in items]
    store.record_all(store.add_reviewer("m", "model").id, model)
    return store


def test_figures_are_those_of_other_programs_over_the_random_part_and_the_same_everywhere(tmp_path: Path):
    with graded() as store:
        labels = store.labels()
    pairs = [(labels["Ada"][n], labels["Ben"][n]) for n in labels["Ada"] if n <= 60]
    one, two = zip(*pairs, strict=True)
    found = json.loads(call("review", "agreement", "pilot", "--json"))
    values = {name: each["value"] for name, each in found["agreement"].items()}
    assert values["raw"] == pytest.approx(np.mean([a == b for a, b in pairs]), abs=1e-9)
    assert values["kappa"] == pytest.approx(cohen_kappa_score(one, two), abs=1e-9)
    assert values["weighted-kappa"] == pytest.approx(cohen_kappa_score(one, two, weights="quadratic"), abs=1e-9)
    alpha = krippendorff.alpha(np.array([one, two]), level_of_measurement="ordinal")
    assert values["alpha-ordinal"] == pytest.approx(alpha, abs=1e-9)
    assert (found["items"], found["set_aside"], found["at_random"]) == (45, 40, True)
    assert found["reviewers"] == ["Ada", "Ben"]  # the model is compared with them, and is not one of them
    assert {(pair["a"], pair["b"]) for pair in found["pairs"]} == {("Ada", "Ben"), ("Ada", "m"), ("Ben", "m")}
    kappa = f"{values['kappa']:.3f}"
    (tmp_path / "systems.tsv").write_text("task\tquery\tlabel\nmade-up\tq2\tnerves\n")
    slices = call("review", "agreement", "pilot", "--by", "slice", "--labels", str(tmp_path / "systems.tsv"))
    with ReviewStore.open("pilot") as store:
        again = review_agreement(store)
    sections = agreement_sections(again, BREAKDOWNS)
    for text in (slices, markdown_sections("Agreement", sections, again.notes), latex_sections(sections)):
        assert kappa in text
    # On what was chosen because it is odd they never agree, and the headline does not hide or hold that.
    assert re.search(r"drawn: holes +40 +0\.000", slices)
    assert "near the cut" in slices
    assert re.search(r"label: nerves +\d", slices)
    right = {n: labels["Ada"][n] == 3 for n in range(10, 101, 10) if n in labels["Ada"]}
    ada = next(row for row in found["gold"] if row["name"] == "Ada")
    assert (ada["items"], ada["agreement"]["raw"]["value"]) == (
        len(right),
        pytest.approx(np.mean(list(right.values()))),
    )


def test_items_that_were_not_drawn_at_random_feed_no_estimate():
    with graded("with") as store:
        with_odd = estimate_labels(store, store.items(), store.standing())
    with graded("without", odd=0) as store:
        without = estimate_labels(store, store.items(), store.standing())
    assert with_odd == without
    with make_project(questions=2) as store:
        store.add_reviewer("Ada")
    said = " ".join(call("review", "agreement", "pilot").split())
    assert "No item was graded by two reviewers yet" in said
    assert "nothing can be said yet" in said


def test_the_rates_are_those_of_ppi_python_and_a_ruling_goes_first():
    with graded(odd=0) as store:
        labels, items = store.labels(), {item.number: item for item in store.items()}
        judged = sorted(labels["Ada"])
        eve = store.add_reviewer("Eve", role="adjudicator")
        store.rule(Ruling(0, eve.id, judged[0], 3, "slip", None, "", None, ""), "t")
        found = estimate_labels(store, list(items.values()), store.standing())

    def human(n: int) -> float:
        return 1.0 if n == judged[0] else ((labels["Ada"][n] >= 2) + (labels["Ben"][n] >= 2)) / 2

    for positive, rate in ((True, found.precision), (False, found.overlooked)):
        mine = [n for n in items if (items[n].facts["label"] > 0) == positive]
        seen, rest = [n for n in mine if n in labels["Ada"]], [n for n in mine if n not in labels["Ada"]]
        says = {n: float(labels["m"][n] >= 2) for n in mine}
        columns = (np.array([human(n) for n in seen]), *(np.array([says[n] for n in part]) for part in (seen, rest)))
        (low,), (high,) = ppi_mean_ci(*columns, alpha=0.05)
        assert (rate.low, rate.high) == pytest.approx((max(0, low), min(1, high)), abs=1e-9)
        assert (rate.human, rate.predicted, rate.method) == (len(seen), len(rest), "prediction-powered")
    assert 0 < found.missed.low < found.missed.value < found.missed.high < 1


def test_the_interval_of_the_missed_share_covers_it():
    """Few people, a model that is often wrong, a known truth: about 95 of 100 intervals hold it."""
    inside, rounds, true = 0, 30, 0.7 * 0.15 / (0.7 * 0.15 + 0.3 * 0.8)
    for seed in range(rounds):
        chance = np.random.default_rng(seed)
        label = chance.random(300) < 0.3
        relevant = np.where(label, chance.random(300) < 0.8, chance.random(300) < 0.15)
        model = relevant ^ (chance.random(300) < 0.2)
        human = np.where(np.arange(300) < 120, relevant.astype(float), np.nan)
        found = missed_share(Votes(human, model.astype(float), (~label).astype(float)))
        inside += found.low <= true <= found.high
    assert inside >= 0.85 * rounds


def test_a_second_look_is_compared_with_the_first_and_counts_nowhere_else():
    with make_project(questions=12, passages=8, overlap=1.0, repeat=0.2) as store:
        ada, dealer, number = store.add_reviewer("Ada"), Dealer(store), 0
        while (place := dealer.next_open(ada)) is not None:
            number += 1
            grade = 3 if place.again and place.item % 2 else place.item % 2
            store.record(ada.id, place.position, DraftDecision("graded", grade), f"t{number}")
        again = [row.item for row in store.standing() if row.again]
        (row,) = review_agreement(store).repeats
        assert len(again) > 4
        assert (row.name, row.items) == ("Ada", len(again))
        assert row.coefficients["raw"].value == pytest.approx(np.mean([item % 2 == 0 for item in again]))
        assert {*store.labels()["Ada"].values()} == {0, 1}


def test_kappa_is_explained_where_nearly_all_is_irrelevant():
    with make_project(questions=20, passages=5, overlap=1.0) as store:
        for person, odd in (("Ada", 7), ("Ben", 8)):
            said = [(n, DraftDecision("graded", 3 if n in (odd, 20) else 0)) for n in range(1, 101)]
            store.record_all(store.add_reviewer(person).id, said)
    said = " ".join(call("review", "agreement", "pilot").split())
    assert "give the same grade to 98 of 100 items" in said
    assert "98% of the grades of Ada and Ben are 0" in said
    assert "pull them far down although nearly all labels agree" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nope",), "no review nope"),
        (("pilot", "--json", "--format", "md"), "exclude each other"),
        (("pilot", "--labels", "absent.tsv"), "absent.tsv"),
        (("pilot", "--by", "person"), "'person' is not one of 'pair', 'slice', 'time'"),
    ],
)
def test_what_cannot_be_shown_is_one_line(words: tuple[str, ...], message: str):
    make_project().close()
    done = CliRunner().invoke(app, ("review", "agreement", *words))
    assert done.exit_code in (1, 2)
    assert message in " ".join(f"{done.output} {done.exception}".split())
    assert "\n" not in str(done.exception)


def test_audit_and_agreement_give_the_same_figures_for_the_same_two_people():
    with Ledger() as ledger:
        review, _ = new_review(ledger, "twice", ["sample/Biology"], ReviewSettings(items=40, overlap=1.0))
    chance = np.random.default_rng(4)
    with review as store:
        numbers = [item.number for item in store.items()]
        first = chance.integers(0, 4, len(numbers))
        second = np.where(chance.random(len(numbers)) < 0.3, chance.integers(0, 4, len(numbers)), first)
        for name, grades in {"Dr. Ada": first, "Dr. Bob": second}.items():
            drafts = [DraftDecision("graded", int(grade)) for grade in grades]
            store.record_all(store.add_reviewer(name).id, zip(numbers, drafts, strict=True))
    agreement = json.loads(call("review", "agreement", "twice", "--json"))
    pair = ("review:twice:Dr. Ada", "review:twice:Dr. Bob")
    for labels in (pair, ("review:twice:*",)):
        words = ("audit", "sample/Biology", "--labels", *labels)
        audit = json.loads(call(*words, "--json"))
        assert (audit["scale"], audit["scale_of"]) == ([0, 1, 2, 3], "review twice")
        assert [each["name"] for each in audit["sets"]] == list(pair)
        assert audit["set_pairs"][0]["agreement"] == agreement["pairs"][0]["agreement"]
        assert {name: audit["agreement"][name] for name in agreement["agreement"]} == agreement["agreement"]
        assert audit["set_pairs"][0]["confusion"] == agreement["pairs"][0]["confusion"]
        assert "On the grades 0, 1, 2 and 3 of the review twice." in " ".join(call(*words).split())
    assert "the grades 0, 1, 2 and 3 of the review" in " ".join(call("review", "agreement", "twice").split())
    assert agreement["agreement"]["kappa"]["value"] == pytest.approx(cohen_kappa_score(first, second))
    quadratic = cohen_kappa_score(first, second, weights="quadratic")
    assert agreement["agreement"]["weighted-kappa"]["value"] == pytest.approx(quadratic)
    # Beside another set the grades are those of judgements, and the output says so.
    other = json.loads(call("audit", "sample/Biology", "--labels", "task", pair[0], "--json"))
    assert other["scale_of"] == "judgements"
    assert other["set_pairs"][0]["scale"][-1] == 2
    printed = " ".join(call("audit", "sample/Biology", "--labels", *pair, "--binary").split())
    assert "On the grades 0 and 1 of judgements, where everything below relevant is 0." in printed
