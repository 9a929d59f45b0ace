"""Which system is better from few labels: bounds against enumeration, full labels against the scores, and replays."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.measure.decision import ALIKE, DEEPEST, OPEN, PoolComparison
from r2med.measure.metrics import Measure
from r2med.measure.score import score


def make_pool(seed: int, questions: int, documents: int = 12, systems: int = 2, measure: str = "nDCG@10"):
    """A comparison of systems that order the same documents at random, and the runs themselves."""
    chance = np.random.default_rng(seed)
    measure = Measure.parse(measure)
    runs = [{} for _ in range(systems)]
    asked, ranks, names = [], [], []
    for question in range(questions):
        orders = [chance.permutation(documents) for _ in range(systems)]
        for run, order in zip(runs, orders, strict=True):
            run[f"q{question}"] = ([f"d{d}" for d in order], [-float(n) for n in range(documents)])
        places = np.array([np.argsort(order) + 1 for order in orders]).T
        for document in np.flatnonzero((places <= measure.cutoff).any(axis=1)):
            asked.append(question)
            ranks.append(places[document])
            names.append((f"q{question}", f"d{document}"))
    given = np.zeros((questions, 1 + systems))
    comparison = PoolComparison(np.array(asked), np.array(ranks), measure, given, seed)
    return comparison, [Run.from_lists(run) for run in runs], names


def means(runs, names, labels, measure: Measure) -> list[float]:
    """The means of the systems by the measures of `score`, on the pool."""
    qrels: dict[str, dict[str, int]] = {}
    for (query, document), label in zip(names, labels, strict=True):
        qrels.setdefault(query, {})[document] = int(label)
    return [score(run, qrels, [measure]).mean(measure) for run in runs]


@pytest.mark.parametrize("measure", ["nDCG@10", "nDCG@3", "P@5", "Recall@4"])
def test_full_labels_give_the_scores_of_the_measure(measure):
    comparison, runs, names = make_pool(3, 7, systems=3, measure=measure)
    labels = np.random.default_rng(1).integers(0, 2, len(names))
    standing = comparison.standing(labels)
    expected = means(runs, names, labels, comparison.measure)
    assert standing.means == pytest.approx(expected)
    assert [pair.difference for pair in standing.pairs] == pytest.approx(
        [expected[a] - expected[b] for a, b in ((0, 1), (0, 2), (1, 2))]
    )
    assert standing.error == 0


@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_those_of_all_completions(seed):
    comparison, runs, names = make_pool(seed, 3, documents=5, measure="nDCG@3")
    chance = np.random.default_rng(seed)
    labels = np.where(chance.random(len(names)) < 0.45, chance.integers(0, 2, len(names)), OPEN)
    unknown = np.flatnonzero(labels == OPEN)
    sums = []
    for values in product((0, 1), repeat=len(unknown)):
        labels[unknown] = values
        if labels.any():
            asked = len({name for (name, _), label in zip(names, labels, strict=True) if label})
            a, b = means(runs, names, labels, comparison.measure)
            sums.append(asked * (a - b))
    labels[unknown] = OPEN
    low, high = comparison.bounds(labels, 0, 1)
    assert (low, high) == pytest.approx((min(sums), max(sums)), abs=1e-9)


def test_what_is_known_beforehand_counts_as_a_label():
    comparison, _, _ = make_pool(5, 4)
    labels = np.random.default_rng(5).integers(0, 2, len(comparison.questions))
    rest = np.random.default_rng(6).random(len(labels)) < 0.5
    given = np.zeros(comparison.given.shape)
    for place in np.flatnonzero(~rest & (labels == 1)):
        given[comparison.questions[place]] += [1, *PoolComparison.gains(comparison.ranks[place], comparison.measure)]
    fewer = PoolComparison(comparison.questions[rest], comparison.ranks[rest], comparison.measure, given)
    assert fewer.standing(labels[rest]).means == pytest.approx(comparison.standing(labels).means)


def replay(comparison: PoolComparison, truth, error: float = 0.05, chance=None):
    """Label until it is decided, by what tells most or at random; the standing and the number of labels."""
    labels = np.full(len(truth), OPEN)
    while True:
        standing = comparison.standing(labels)
        if standing.error <= error or not standing.worth.any():
            return standing, int((labels != OPEN).sum())
        best = standing.worth.argmax() if chance is None else chance.choice(np.flatnonzero(labels == OPEN))
        labels[best] = truth[best]


def test_planted_differences_are_found_with_few_labels_and_few_errors():
    wrong, few, many = 0, 0, 0
    for seed in range(40):
        comparison, _, _ = make_pool(seed, 20)
        chance = np.random.default_rng(seed)
        # Relevance falls with the rank in both lists, faster in that of the better one.
        slopes = chance.permutation([-0.75, -0.35])
        latent = 0.6 + (np.log2(comparison.ranks) * slopes).sum(axis=1)
        truth = (chance.random(len(latent)) < 1 / (1 + np.exp(-latent))).astype(int)
        true = comparison.standing(truth).pairs[0].difference
        standing, labels = replay(comparison, truth)
        pair = standing.pairs[0]
        says = 0 if pair.alike > pair.ahead else np.sign(pair.difference)
        wrong += abs(true) > ALIKE and says != np.sign(true)
        few += labels
        if seed < 12:
            many += replay(comparison, truth, chance=chance)[1] - labels
    assert wrong <= 5, "5% of 40 are 2; more than 5 would come once in 100"
    assert few < 40 * len(comparison.questions) / 3
    assert many > 0


def test_a_label_that_cannot_matter_is_never_asked_for_and_identical_lists_are_alike():
    ranks = np.array([[1, 1], [2, 2], [3, 3], [1, DEEPEST], [DEEPEST, 1]])
    comparison = PoolComparison(np.array([0, 0, 0, 1, 1]), ranks, Measure("nDCG", 3), np.zeros((2, 3)))
    worth = comparison.standing(np.full(5, OPEN)).worth
    assert worth[:3].max() < worth[3:].min()
    same = PoolComparison(
        np.zeros(3, int), np.repeat(np.array([[1], [2], [3]]), 2, 1), Measure("nDCG", 3), np.zeros((1, 3))
    )
    pair = same.standing(np.full(3, OPEN)).pairs[0]
    assert (pair.alike, pair.ahead, pair.deviation) == (1.0, 0.0, 0.0)
    with pytest.raises(R2medError, match=r"not by MAP@10"):
        PoolComparison(same.questions, same.ranks, Measure("MAP", 10), same.given)
