"""The spec language: printing and parsing are inverses, and bad input gets one line with a place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import R2medError, SpecError
from r2med.pipeline.spec import Call, Chain, Condition, Value, parse
from r2med.pipeline.system import System

names = st.sampled_from(["bm25", "rrf", "hyde", "search-o1", "a_b", "BAAI/bge-m3", "k1", "depth", "true", "none", "e5"])
words = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.text(alphabet="abc./:@+~-_'\"\\,=()[]> \n\t059eé", max_size=12),
    st.sampled_from(["true", "false", "none", "True", ".5", "5", "-1", "1e5", "", "gpt-4o", "./a/b.tsv", "~/x", "inf"]),
)
numbers = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))


def calls(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Call]:
    options = st.dictionaries(names, values, max_size=3).map(lambda found: tuple(found.items()))
    return st.builds(Call, names, st.lists(values, max_size=3).map(tuple), options)


def chains(values: st.SearchStrategy[Value], least: int) -> st.SearchStrategy[Chain]:
    return st.builds(Chain, st.lists(calls(values), min_size=least, max_size=3).map(tuple))


def nested(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    # As a value a chain has two calls or more: one call alone is a Call.
    return st.one_of(st.lists(values, max_size=3).map(tuple), calls(values), chains(values, 2), conditions(values))


def conditions(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    quantities = st.one_of(st.sampled_from(["nqc", "score-gap"]), calls(values))
    return st.builds(Condition, quantities, st.sampled_from("<>"), numbers)


values: st.SearchStrategy[Value] = st.recursive(
    st.one_of(words, numbers, st.booleans(), st.none()), nested, max_leaves=6
)


@settings(deadline=None)
@given(chains(values, 1))
def test_parse_is_the_inverse_of_str(chain: Chain) -> None:
    # repr, because 1 == True == 1.0 in Python and the language tells them apart.
    assert repr(parse(str(chain))) == repr(chain)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=30), st.text(alphabet="ab15.e-+<>()[],='\"\\ \n", max_size=30)))
def test_any_text_parses_to_a_fixed_point_or_is_a_spec_error(text: str) -> None:
    try:
        chain = parse(text)
    except SpecError as error:
        message = str(error)
    else:
        message = ""
        assert repr(parse(str(chain))) == repr(chain)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("bm25", "bm25"),
        ("bm25()", "bm25"),
        (" hyde( 'gpt-4o' )>>bm25(k1 = 1.20,) ", "hyde(gpt-4o) >> bm25(k1=1.2)"),
        ("rrf(bm25,hyde(x)>>bge,k=60)", "rrf(bm25, hyde(x) >> bge, k=60)"),
        ("rrf(bm25())", "rrf(bm25())"),
        ("a(true, none, false, [1, [2.0, x]], [])", "a(true, none, false, [1, [2.0, x]], [])"),
        ("a(1e3, -0.5, +4, .25, 1.)", "a(1000.0, -0.5, 4, 0.25, 1.0)"),
        ("replay(./runs/a.jsonl, ~/b, 4o-mini)", 'replay(./runs/a.jsonl, ~/b, "4o-mini")'),
        ("dense(BAAI/bge-large-en-v1.5)", "dense(BAAI/bge-large-en-v1.5)"),
        (r"""a('it\'s "so"')""", r"""a("it's \"so\"")"""),
        (r"""a('\"', '\\', "\u00e9\n")""", r"""a("\"", "\\", "é\n")"""),
    ],
)
def test_spellings_have_one_print(text: str, printed: str) -> None:
    assert str(parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected the name of a stage at column 1"),
        ("bm25 >>", "expected the name of a stage at column 8"),
        (">> bm25", "expected the name of a stage, found '>>' at column 1"),
        ("5", "expected the name of a stage, found '5' at column 1"),
        ("bm25(", "expected a value at column 6"),
        ("bm25(k1=)", "expected a value, found ')' at column 9"),
        ("bm25(k1=1", "expected ',', found the end at column 10"),
        ("bm25(k1=1 b=2)", "expected ',', found 'b' at column 11"),
        ("bm25 bge", "unexpected 'bge' at column 6"),
        ("bm25)", "unexpected ')' at column 5"),
        ("bm25(k1=1, k1=2)", "k1 is given twice"),
        ("bm25(k1=1, 2)", "a value without a name after one with a name"),
        ('bm25("open', "unexpected '\"open' at column 6"),
        (r'bm25("\x")', r"""bad escape in '"\\x"' at column 6"""),
        ("bm25 ; rm", "unexpected '; rm' at column 6"),
        ("a(1e999)", "the number 1e999 is too large at column 3"),
        ("a(" + "1" * 5000 + ")", "the number 111111111111... is too long at column 3"),
        ("a(" * 60 + ")" * 60, "more than 50 values inside one another at column 103"),
        ("a(" + "[" * 10_000, "more than 50 values inside one another at column 53"),
    ],
)
def test_bad_input_is_one_line_with_the_column(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bm25(depth=99999999999999999999999)", "the number 99999999999999999999999 is too large at column 12"),
        ("bm25(depth=-9223372036854775809)", "too large"),
        ("x" * 256, "a name of 256 letters"),
        ('replay("\\u0000") >> bm25', "a character that no text can hold"),
        ('hyde("scripted:\\ud800") >> bm25', "a character that no text can hold"),
        ("wordllama(dim=0)", "dim must be at least 1"),
    ],
)
def test_what_no_result_could_record_is_refused_before_any_work(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        System.parse(text)


@pytest.mark.parametrize(
    "spec",
    ["~nobody-of-this-name/model", "bm25 >> ~nobody-of-this-name/model", 'replay("~nobody-of-this-name/x") >> bm25'],
)
def test_the_home_of_nobody_is_one_line(spec: str) -> None:
    with pytest.raises(R2medError, match="~nobody-of-this-name") as error:
        System.parse(spec).key()
    assert "\n" not in str(error.value)
