"""The dense retriever: from spec to ranked lists, joins as published, and nothing encoded twice."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from encoders import HashEncoder, context
from r2med.data.dataset import Collection, Generation, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.encode.encoder import Role
from r2med.encode.resolve import OPTIONS
from r2med.errors import R2medError, SpecError
from r2med.pipeline.spec import parse
from r2med.retrieve.dense import Dense

TASK = Task("tiny", "tiny", "custom")
DOCUMENTS = Texts([f"d{number}" for number in range(200)], [f"document {number % 190}" for number in range(200)])
QUERIES = Texts(["q0", "q1", "d7"], ["why pale?", "why blue?", "document 7"])


def collection(*generations: tuple[Generation, ...]) -> Collection:
    made = Collection(TASK, DOCUMENTS, QUERIES)
    return made.expanded(generations) if generations else made


@pytest.fixture
def encoder(monkeypatch) -> HashEncoder:
    """The encoder of every model's name."""
    made = HashEncoder(dimension=16)
    monkeypatch.setattr(Dense, "encoder", lambda self, task=None: made)
    return made


def cosine_run(encoder: HashEncoder, queries: np.ndarray, depth: int, *, drop_self: bool) -> Run:
    """The lists as one would write them down by hand."""
    documents = np.array([encoder.vector(text) for text in DOCUMENTS.texts], dtype=np.float64)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    lists = {}
    for name, query in zip(QUERIES.ids, queries.astype(np.float64), strict=True):
        scores = documents @ (query / np.linalg.norm(query))
        keep = [place for place, document in enumerate(DOCUMENTS.ids) if not (drop_self and document == name)]
        lists[name] = ([DOCUMENTS.ids[place] for place in keep], scores[keep].astype(np.float32))
    return Run.from_lists(lists).cut(depth)


def close(found: Run, wanted: Run) -> None:
    assert list(found.queries) == list(wanted.queries)
    assert found.documents == wanted.documents
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-6)


@pytest.mark.parametrize("drop_self", [True, False])
@pytest.mark.parametrize("depth", [1, 50, 1000])
def test_the_nearest_documents_with_ties_by_id(encoder, depth, drop_self):
    # Without a prompt the query that is also a document finds itself first.
    encoder.prompts[Role.QUERY] = ""
    run = Dense("hash", depth=depth, drop_self=drop_self).retrieve(collection(), context())
    assert (run["d7"].documents[0] == "d7") != drop_self
    queries = np.array([encoder.vector(text) for text in QUERIES.texts])
    close(run, cosine_run(encoder, queries, depth, drop_self=drop_self))
    assert run.scores.dtype == np.float32


@pytest.mark.parametrize("quantize", ["", "int8"])
def test_a_document_without_text_is_left_out_counted_and_never_found(encoder, quantize):
    texts = ["" if number == 3 else " \n\u3000" if number == 7 else text for number, text in enumerate(DOCUMENTS.texts)]
    notes = context()
    stage = Dense("hash", depth=1000, quantize=quantize)
    data = Collection(TASK, Texts(DOCUMENTS.ids, texts), QUERIES)
    assert stage.forecast(data, notes)["documents to encode"] == len({*texts} - {"", " \n\u3000"})
    run = stage.retrieve(data, notes)
    assert notes.notes.warnings == ["2 documents without text cannot be found by vectors, the first 'd3'"]
    kept = [name for name in DOCUMENTS.ids if name not in ("d3", "d7")]
    assert {name: sorted(run[name].documents) for name in QUERIES.ids} == dict.fromkeys(QUERIES.ids, sorted(kept))
    whole = Texts(kept, [DOCUMENTS.text(name) for name in kept])
    assert run == stage.retrieve(Collection(TASK, whole, QUERIES), context())
    with pytest.raises(R2medError, match="tiny: no document has any text"):
        stage.retrieve(Collection(TASK, Texts(["a"], [" "]), QUERIES), context())


def query_vector(encoder: HashEncoder, text: str) -> np.ndarray:
    return encoder.vector(f"query: {text}").astype(np.float64)


JOINS = [
    ("", "hyde", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("", "lamer", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("", "answer", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("", "search-o1", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("", "replay", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("", "query2doc", lambda e, q, d: query_vector(e, f"{q}[SEP]{d}")),
    ("mean", "query2doc", lambda e, q, d: (query_vector(e, q) + e.vector(d)) / 2),
    ("concat", "hyde", lambda e, q, d: query_vector(e, f"{q}[SEP]{d}")),
    ("replace", "hyde", lambda e, q, d: e.vector(d)),
    ("replace", "replay", lambda e, q, d: query_vector(e, d)),
    ("repeat(3)", "hyde", lambda e, q, d: query_vector(e, f"{q} {q} {q}[SEP]{d}")),
]


@pytest.mark.parametrize(("join", "method", "vector"), JOINS)
@pytest.mark.parametrize("by_stage", [True, False])
def test_generated_texts_join_as_published_or_as_asked(encoder, join, method, vector, by_stage):
    texts = ["anaemia", "cyanosis", "cut short"]
    made = [
        (Generation(text, method, join="" if by_stage else join, incomplete="cut" if "cut" in text else ""),)
        for text in texts
    ]
    run = Dense("hash", join=join if by_stage else "").retrieve(collection(*made), context())
    wanted = [vector(encoder, q, d) for q, d in zip(QUERIES.texts[:2], texts[:2], strict=True)]
    wanted.append(query_vector(encoder, QUERIES.texts[2]))
    close(run, cosine_run(encoder, np.array(wanted), 100, drop_self=True))


def test_the_stage_s_join_comes_before_the_generation_s(encoder):
    made = [(Generation("anaemia", "hyde", join="replace"),)] * 3
    run = Dense("hash", join="mean").retrieve(collection(*made), context())
    wanted = [(query_vector(encoder, text) + encoder.vector("anaemia")) / 2 for text in QUERIES.texts]
    close(run, cosine_run(encoder, np.array(wanted), 100, drop_self=True))


def test_several_generations_are_averaged_with_the_query(encoder):
    made = [
        (Generation("one", "hyde"), Generation("two", "hyde"), Generation("", "hyde")),
        (Generation("one", "query2doc"), Generation("two", "hyde")),
        (Generation("one", "hyde", join="replace"), Generation("two", "hyde", join="replace")),
    ]
    run = Dense("hash").retrieve(collection(*made), context())
    one, two = encoder.vector("one").astype(np.float64), encoder.vector("two")
    wanted = [
        (query_vector(encoder, QUERIES.texts[0]) + one + two) / 3,
        (query_vector(encoder, f"{QUERIES.texts[1]}[SEP]one") + two) / 2,
        (one + two) / 2,
    ]
    close(run, cosine_run(encoder, np.array(wanted), 100, drop_self=True))


def test_the_record_says_what_was_encoded(encoder):
    notes = context()
    Dense("hash", dim=8, quantize="int8", rescore=2).retrieve(
        collection(*[(Generation("anaemia", "hyde"),)] * 3), notes
    )
    record = notes.notes.facts
    assert record["documents"]["texts"] == 200
    assert record["documents"]["encoded"] == 190
    assert record["queries"]["first"] == "query: why pale?"
    passages = record["passages"]
    assert (passages["texts"], passages["encoded"], passages["first"]) == (3, 1, "anaemia")
    assert (record["index"], record["index_bytes"], record["dimension"]) == ("int8", 200 * 8 + 8 * 4, 8)
    assert record["similarity"] == "cosine"


def test_a_second_run_loads_nothing(encoder, monkeypatch):
    stage = Dense("hash")
    first = stage.retrieve(collection(), context())
    again = HashEncoder(dimension=16)
    monkeypatch.setattr(Dense, "encoder", lambda self, task=None: again)
    assert stage.forecast(collection(), context()) == {"documents to encode": 0, "queries to encode": 0}
    assert stage.retrieve(collection(), context()) == first
    assert again.loads == 0
    assert again.batches == []


def test_a_forecast_counts_texts_and_encodes_none(encoder):
    assert Dense("hash").forecast(collection(), context()) == {"documents to encode": 190, "queries to encode": 3}
    assert encoder.loads == 0


def test_quantised_and_truncated_lists_are_near_the_exact_ones(encoder):
    exact = Dense("hash", depth=20).retrieve(collection(), context())
    for stage in (Dense("hash", depth=20, quantize="int8"), Dense("hash", depth=20, quantize="binary", rescore=4)):
        found = stage.retrieve(collection(), context())
        for query, ranking in exact:
            assert len(set(ranking.documents) & set(found[query].documents)) > 12
    cut = Dense("hash", depth=20, dim=16).retrieve(collection(), context())
    assert cut == exact


def test_half_precision_storage(encoder):
    exact = Dense("hash").retrieve(collection(), context())
    notes = context()
    found = Dense("hash", store="float16").retrieve(collection(), notes)
    assert notes.notes.facts["index_bytes"] == 200 * 16 * 2
    np.testing.assert_allclose(found.scores, exact.scores, atol=2e-3)


def test_no_queries_no_lists(encoder):
    empty = Collection(TASK, DOCUMENTS, Texts([], []))
    assert len(Dense("hash").retrieve(empty, context())) == 0


def test_sides_of_different_dimensions_are_refused(encoder):
    def shorter(texts, vectors):
        return vectors[:, :9] if any("why" in text for text in texts) else vectors

    encoder.spoil = shorter
    with pytest.raises(R2medError, match="hash: queries have 9 dimensions, documents 16"):
        Dense("hash").retrieve(collection(), context())


def test_an_empty_query_is_named(encoder):
    broken = Collection(TASK, DOCUMENTS, Texts(["q9"], [" "]))
    with pytest.raises(R2medError, match="q9 in the queries is an empty text"):
        Dense("hash").retrieve(broken, context())


@pytest.mark.parametrize(
    "line",
    [
        "minilm",
        "minilm(dim=256, quantize=int8, rescore=4)",
        "hf:BAAI/bge-base-en-v1.5(pooling=cls)",
        'hf:BAAI/bge-base-en-v1.5(max_length=512, query_prompt="Represent this: ", normalize=true)',
        "./models/mine(depth=1000, drop_self=false, store=float16, remote_code=true)",
        "my.module:MyEncoder(similarity=dot, depth=5, heat=0.5, layers=[1, 2])",
        "bge-m3@http://localhost:8000/v1(join=replace)",
        'minilm(join="repeat(2)")',
    ],
)
def test_specs_round_trip(line):
    (call,) = parse(line).calls
    stage = Dense.from_call(call)
    assert sorted(stage.spec.options) == sorted(call.options)
    assert Dense.from_call(parse(str(stage)).calls[0]) == stage


def test_settings_are_what_differs_from_the_card():
    stage = Dense.from_call(parse('m(pooling=cls, query_prompt="", depth=5, dim=8)').calls[0])
    assert stage.settings == {"pooling": "cls", "query_prompt": ""}
    assert stage.depth == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("minilm(50)", r"a model's options have names, such as minilm\(depth=50\)"),
        ("minilm(model=bge)", "minilm has no option 'model'"),
        ("minilm(poolin=cls)", "minilm has no option 'poolin'; did you mean pooling"),
        ("minilm(xyzzy=cls)", "minilm has no option 'xyzzy'; it takes adapter, append_eos"),
        ("minilm(pooling=sum)", "minilm: pooling must be one of cls, mean, .*, not 'sum'"),
        ("minilm(dtype=int8, backend=torch)", "minilm: dtype=int8 needs backend=onnx"),
        ("wordllama(pooling=cls)", "wordllama: a model of the backend static has no pooling"),
        ("minilm(depth=0)", "minilm: depth must be 1 or more, not 0"),
        ("minilm(depth=many)", "minilm: depth must be a whole number, not many"),
        ("minilm(dim=-1)", "minilm: dim and rescore must not be negative"),
        ("minilm(quantize=int4)", "minilm: unknown quantize 'int4'; did you mean int8"),
        ("minilm(rescore=4)", "minilm: rescore=4 needs quantize=int8 or quantize=binary"),
        ("minilm(store=int8)", "minilm: unknown store 'int8'; known: float16, float32"),
        ("minilm(similarity=euclid)", "minilm: similarity must be one of cosine, dot, not 'euclid'"),
        ("minilm(join=sum)", "join 'sum' is not known"),
        ("minilm(max_length=long)", "minilm: max_length must be a whole number, not long"),
    ],
)
def test_a_wrong_option_is_one_clear_line(line, message):
    with pytest.raises(SpecError, match=message):
        Dense.from_call(parse(line).calls[0])


def test_every_setting_of_an_encoder_can_be_given_by_name():
    names = {entry.name for entry in fields(Dense) if entry.metadata.get("encoder")}
    assert names == set(OPTIONS)


def test_a_class_of_one_s_own_gets_its_own_options(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "class Letters:\n"
        "    def __init__(self, letters='ab'):\n"
        "        self.letters = letters\n"
        "    def encode_queries(self, texts):\n"
        "        return [[text.count(letter) + 0.5 for letter in self.letters] for text in texts]\n"
        "    encode_documents = encode_queries\n"
    )
    monkeypatch.chdir(tmp_path)
    stage = Dense.from_call(parse("mine:Letters(letters=cde, depth=2)").calls[0])
    assert stage == Dense("mine:Letters", depth=2, options={"letters": "cde"})
    tiny = Collection(TASK, Texts(["a", "b", "c"], ["ccc", "dd", "e"]), Texts(["q"], ["d"]))
    notes = context()
    assert stage.retrieve(tiny, notes)["q"].documents[0] == "b"
    assert notes.notes.facts["dimension"] == 3
    with pytest.raises(SpecError, match="unexpected keyword argument 'leters'; it takes letters"):
        Dense.from_call(parse("mine:Letters(leters=cde)").calls[0]).encoder()


def test_static_vectors_end_to_end():
    pytest.importorskip("wordllama")
    texts = ["Iron deficiency makes the skin pale.", "The moon has no air.", "Oxygen colours the blood."]
    small = Collection(TASK, Texts(["iron", "moon", "oxygen"], texts), Texts(["q"], ["a pale woman lacks iron"]))
    run = Dense("wordllama", max_length=6).retrieve(small, notes := context())
    assert run["q"].documents[0] == "iron"
    assert notes.notes.facts["documents"]["truncated"] > 0
    assert Dense("wordllama").requirements.extra == ""
    described = Dense("wordllama", query_prompt="q: ").describe()
    assert described["model"] == "wordllama"
    assert (described["query prompt"], described["document prompt"]) == ("q: ", "")


def test_the_fingerprint_follows_the_encoder(encoder):
    before = Dense("hash").key()
    encoder.prompts[Role.QUERY] = "other: "
    assert Dense("hash").key() != before
