"""Measures parse from every usual spelling, print one way, and refuse what makes no sense."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import R2medError
from r2med.measure.metrics import DEFAULT, Measure, parse_all

WHOLE = ("nDCG", "MAP", "MRR")
NAMES = (*WHOLE, "Recall", "P", "Hit", "alpha-nDCG", "aspect-recall")


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 10**9 - 1))
def test_printing_and_parsing_are_inverse(name: str, cutoff: int) -> None:
    measure = Measure(name, cutoff)
    assert str(measure) == f"{name}@{cutoff}"
    assert {Measure.parse(text) for text in (str(measure), str(measure).upper(), f" {measure} ".lower())} == {measure}


@pytest.mark.parametrize("name", WHOLE)
def test_a_measure_over_the_whole_list_prints_without_a_cutoff(name: str) -> None:
    assert str(Measure(name)) == name
    assert Measure.parse(name.lower()) == Measure(name)


@pytest.mark.parametrize(
    ("spellings", "printed"),
    [
        ("ndcg_at_10 ndcg_cut_10 ndcg_cut.10 NDCG@10 ndcg_10 nDCG@010", "nDCG@10"),
        ("recall_at_100 R@100 recall_100 recall.100 r@100", "Recall@100"),
        ("map_at_100 AP@100 map_cut_100 map_cut.100 MAP@100", "MAP@100"),
        ("precision_at_10 P_10 P.10 p@10 prec@10", "P@10"),
        ("RR@10 mrr_at_10 MRR@10 recip_rank@10", "MRR@10"),
        ("recip_rank mrr RR", "MRR"),
        ("Success@10 hit_at_10 success_10 success.10 hit_rate@10 accuracy_at_10", "Hit@10"),
        ("map ap AP", "MAP"),
        ("alpha_nDCG@10 alpha-ndcg_at_10 alpha_ndcg_10 ALPHA-NDCG@10", "alpha-nDCG@10"),
        ("strec@20 StRecall@20 aspect_recall_at_20", "aspect-recall@20"),
    ],
)
def test_aliases(spellings: str, printed: str) -> None:
    assert {str(Measure.parse(text)) for text in spellings.split()} == {printed}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ndgc@10", "unknown measure 'ndgc@10'; did you mean nDCG@10?"),
        ("Recal@25", "unknown measure 'Recal@25'; did you mean Recall@25?"),
        ("mpa", "unknown measure 'mpa'; did you mean MAP?"),
        (
            "bpref",
            "unknown measure 'bpref'; known: Hit@10, MAP, MRR, P@10, Recall@10, alpha-nDCG@10, aspect-recall@10, nDCG",
        ),
        ("", "unknown measure ''"),
        ("@10", "unknown measure '@10'"),
        ("nDCG@0", "nDCG@0: the cutoff must be a whole number from 1 on"),
        ("nDCG@-5", "'nDCG@-5': the cutoff must be a whole number from 1 on"),
        ("nDCG@ten", "'nDCG@ten': the cutoff must be a whole number from 1 on"),
        ("nDCG@1.5", "'nDCG@1.5': the cutoff must be a whole number from 1 on"),
        ("nDCG@", "'nDCG@': the cutoff must be a whole number from 1 on"),
        ("nDCG@1@2", "the cutoff must be a whole number from 1 on"),
        ("nDCG@٣", "the cutoff must be a whole number from 1 on"),
        ("nDCG@" + "9" * 5000, "the cutoff must be a whole number from 1 on"),
        ("map_cut_0", "MAP@0: the cutoff must be a whole number from 1 on"),
        ("P", "P needs a cutoff, such as P@10"),
        ("recall", "Recall needs a cutoff, such as Recall@10"),
        ("hit", "Hit needs a cutoff, such as Hit@10"),
    ],
)
def test_bad_measures_are_one_line(text: str, said: str) -> None:
    with pytest.raises(R2medError) as caught:
        Measure.parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_a_measure_or_a_plain_error(text: str) -> None:
    try:
        measure = Measure.parse(text)
    except R2medError:
        return
    assert Measure.parse(str(measure)) == measure


@pytest.mark.parametrize(("name", "cutoff"), [("ndcg", 10), ("nDCG", -1), ("nDCG", 0), ("nDCG", "10"), ("nDCG", 2.0)])
def test_the_constructor_refuses_too(name: str, cutoff: int) -> None:
    with pytest.raises(R2medError):
        Measure(name, cutoff)


def test_the_default_is_led_by_the_benchmarks_headline() -> None:
    assert [str(measure) for measure in DEFAULT] == ["nDCG@10", "Recall@100", "MAP@100", "MRR@10", "Hit@10", "P@10"]
    assert parse_all(["map", "MAP", "ndcg@10"]) == (Measure("MAP"), Measure("nDCG", 10))
