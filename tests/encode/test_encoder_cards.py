"""The cards: the published models as the protocol has them, the templates, and a user's own file with its mistakes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.data.tasks import Task, registry, task
from r2med.encode.cards import EncoderCard, card, cards
from r2med.encode.encoder import Prompts
from r2med.encode.resolve import describe_model, encoder_for, list_models
from r2med.errors import R2medError, SpecError
from r2med.models.templates import Template
from r2med.store.cache import home

SENTENCES = {
    "Biology": "Given a Biology post, retrieve relevant passages that help answer the post",
    "Medical-Sciences": "Given a Medical Science post, retrieve relevant passages that help answer the post",
    "MedXpertQA-Exam": "Given a Medical Exam, retrieve relevant passages that help answer the exam",
    "PMC-Treatment": "Given a Clinical Case, retrieve relevant passages that help answer the case",
    "IIYi-Clinical": "Given a Clinical Case, retrieve similar cases that help diagnose the case",
}
INSTRUCTOR = {
    "Biology": ("Biology post for retrieving relevant paragraphs", "Biology paragraph"),
    "Bioinformatics": ("Bioinformatics post for retrieving relevant paragraphs", "Bioinformatics paragraph"),
    "Medical-Sciences": ("Medical Science post for retrieving relevant paragraphs", "Medical Science paragraph"),
    "MedXpertQA-Exam": (
        "Medical Exam for retrieving relevant paragraphs that help answer the exam",
        "Medical paragraph",
    ),
    "MedQA-Diag": ("Medical Exam for retrieving relevant paragraphs that help answer the exam", "Medical paragraph"),
    "PMC-Treatment": (
        "Clinical Case for retrieving relevant paragraphs that help answer the case",
        "Medical paragraph",
    ),
    "PMC-Clinical": ("Clinical Case for retrieving similar cases that help diagnose the case", "Clinical Case"),
    "IIYi-Clinical": ("Clinical Case for retrieving similar cases that help diagnose the case", "Clinical Case"),
}
PUBLISHED = [
    # name, repository, pooling, normalised, longest query, longest document, similarity
    ("contriever", "facebook/contriever-msmarco", "mean", False, 512, 512, "cosine"),
    ("medcpt", "ncbi/MedCPT-Article-Encoder", "cls", False, 512, 512, "cosine"),
    ("inst-l", "hkunlp/instructor-large", "mean", True, 512, 512, "cosine"),
    ("inst-xl", "hkunlp/instructor-xl", "mean", True, 512, 512, "cosine"),
    ("bmr-410m", "BMRetriever/BMRetriever-410M", "last", False, 512, 512, "cosine"),
    ("bmr-2b", "BMRetriever/BMRetriever-2B", "last", False, 1024, 1024, "cosine"),
    ("bmr-7b", "BMRetriever/BMRetriever-7B", "last", False, 2048, 2048, "cosine"),
    ("bge", "BAAI/bge-large-en-v1.5", "cls", True, 512, 512, "cosine"),
    ("e5", "intfloat/e5-mistral-7b-instruct", "last", True, 2048, 2048, "cosine"),
    ("sfr", "Salesforce/SFR-Embedding-Mistral", "last", True, 2048, 2048, "cosine"),
    ("grit", "GritLM/GritLM-7B", "mean", True, 512, 2048, "cosine"),
    ("nv", "nvidia/NV-Embed-v2", "own", True, 4096, 4096, "cosine"),
    ("openai", "text-embedding-3-large", "mean", False, 6000, 6000, "cosine"),
    ("voyage", "voyage-3", "mean", False, 16000, 16000, "cosine"),
]
TODAY = [
    "bge-m3", "gte-qwen2-1.5b", "gte-qwen2-7b", "qwen3-embedding-0.6b", "qwen3-embedding-4b", "qwen3-embedding-8b",
    "reasonir", "rader", "diver", "reason-embed-4b", "reason-embed-8b", "harrier", "minilm", "mpnet", "medembed",
    "wordllama",
]  # fmt: skip


@pytest.mark.parametrize(("name", "repository", "pooling", "normalize", "query", "document", "similarity"), PUBLISHED)
def test_published_models_are_as_the_protocol_has_them(
    name, repository, pooling, normalize, query, document, similarity
):
    found = card(name)
    assert (found.id, found.pooling, found.normalize) == (repository, pooling, normalize)
    assert (found.max_query, found.max_document, found.similarity) == (query, document, similarity)
    assert found.append_eos == (name.startswith("bmr") or name in ("e5", "sfr"))
    assert found.remote_code == (name == "nv")
    # Generated passages get the query's instruction from these models only.
    assert found.prompt_passages == (name in ("inst-l", "inst-xl", "grit", "nv"))


def test_the_two_ways_of_medcpt():
    published, own = card("medcpt"), card("medcpt-card")
    assert (published.query_id, published.similarity, published.pair) == ("", "cosine", True)
    assert (own.id, own.query_id) == ("ncbi/MedCPT-Article-Encoder", "ncbi/MedCPT-Query-Encoder")
    assert (own.similarity, own.max_query, own.max_document, own.pair) == ("dot", 64, 512, True)


@pytest.mark.parametrize("base", SENTENCES)
def test_prefixes_made_from_the_task_sentence(base):
    sentence = SENTENCES[base]
    for name in ("e5", "sfr", "nv"):
        assert describe_model(name, task(base)).query == f"Instruct: {sentence}\nQuery: <query>"
        assert describe_model(name, task(base)).document == "<document>"
    for name in ("bmr-410m", "bmr-2b", "bmr-7b"):
        shown = describe_model(name, task(base))
        assert shown.query == f"{sentence}\nQuery: <query>"
        assert shown.document == "Represent this passage\npassage: <document>"
        assert shown.passage == "<passage>"
    grit = describe_model("grit", task(base))
    assert grit.query == f"<|user|>\n{sentence}\n<|embed|>\n<query>"
    assert grit.document == "<|embed|>\n<document>"
    assert grit.passage == grit.query.replace("<query>", "<passage>")
    assert describe_model("bge", task(base)).query == "Represent this sentence for searching relevant passages: <query>"
    for name in ("contriever", "medcpt", "openai", "voyage"):
        assert describe_model(name, task(base)).query == "<query>"


@pytest.mark.parametrize("base", INSTRUCTOR)
def test_instructors_prompts_for_every_task(base):
    query, document = INSTRUCTOR[base]
    for name in (base, f"nano/{base}", f"sample/{base}"):
        for model in ("inst-l", "inst-xl"):
            shown = describe_model(model, task(name))
            assert shown.query == f"Represent the {query}: <query>"
            assert shown.document == f"Represent the {document} for retrieval: <document>"


def test_instructor_has_words_for_a_task_of_ones_own():
    mine = Task("mine", "mine", "custom")
    assert describe_model("inst-l", mine).query == "Represent the question for retrieving relevant paragraphs: <query>"


def test_all_that_people_would_try_is_there():
    assert set(TODAY) <= set(cards())
    assert [each.name for each in list_models()][:3] == ["contriever", "medcpt", "medcpt-card"]
    assert describe_model("qwen3-embedding-8b", task("Biology")).query.endswith("answer the post\nQuery:<query>")
    assert describe_model("reason-embed-8b", task("Biology")).query.endswith("answer the post\nQuery: <query>")
    assert describe_model("rader", task("Biology")).document == "document: <document>"


@pytest.mark.parametrize("name", cards())
def test_every_card_makes_an_encoder_for_every_task(name):
    found = card(name)
    assert found.licence
    assert re.fullmatch(r"main|[0-9a-f]{40}", found.revision)
    for each in registry().values():
        made = encoder_for(name, {}, each)
        assert made.similarity == found.similarity
        shown = describe_model(name, each)
        for text in (shown.query, shown.document, shown.passage):
            assert not re.search(r"\{\w+\}", text)


def test_a_card_like_another_does_not_take_over_its_commit(tmp_path):
    (home() / "encoders.toml").write_text('[model.mine]\nlike = "bge"\nid = "me/mine"\nmax_document = 128\n')
    mine = card("mine")
    assert (mine.id, mine.revision, mine.pooling, mine.max_document, mine.max_query) == (
        "me/mine",
        "main",
        "cls",
        128,
        512,
    )
    assert mine.query_prompt == card("bge").query_prompt


def test_an_adapter_is_one_more_line():
    text = '[model.mine]\nlike = "e5"\nadapter = "me/lora"\n\n[model.bge]\nid = "me/other"\nparameters = 5\n'
    (home() / "encoders.toml").write_text(text)
    assert (card("mine").adapter, card("mine").revision) == ("me/lora", card("e5").revision)
    assert encoder_for("mine", {}, task("Biology")).requirements.hub == ("intfloat/e5-mistral-7b-instruct", "me/lora")
    assert card("bge").id == "me/other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model.mine", "not readable as TOML"),
        ("[models.mine]\nid='a'", "unknown table 'models'; did you mean model? (a card is a table [model.NAME])"),
        ("model=3", "model is not a table of cards; a card is a table [model.NAME]"),
        ("[model]\nmine=3", "model is not a table of cards"),
        ("[model.mine]\npooling='mean'", "mine: id is missing"),
        ("[model.mine]\nlike='bgee'", "is like 'bgee', which is not a card before it; did you mean bge"),
        ("[model.mine]\nlike=['bge']", "is like ['bge'], which is not a card before it"),
        ("[model.mine]\nlik='bge'", "unknown field 'lik'; did you mean like"),
        ("[model.mine]\nid='a'\npoling='mean'", "unknown field 'poling'; did you mean pooling"),
        ("[model.mine]\nid='a'\nname='b'", "unknown field 'name'"),
        ("[model.mine]\nid=3", "id must be a text, not 3"),
        ("[model.mine]\nid='a'\nmax_query='long'", "max_query must be a whole number, not 'long'"),
        ("[model.mine]\nid='a'\nmax_query=true", "max_query must be a whole number, not True"),
        ("[model.mine]\nid='a'\nnormalize=1", "normalize must be true or false, not 1"),
        ("[model.mine]\nid='a'\nparameters='big'", "parameters must be a number"),
        ("[model.mine]\nid='a'\ndense='2_Dense'", "dense must be a list of texts"),
        ("[model.mine]\nid='a'\nquery_prompt=3", "query_prompt must be a text or a table"),
        ("[model.mine]\nid='a'\nquery_prompt='{nuon}: '", "has {nuon}; did you mean noun"),
        ("[model.mine]\nid='a'\npooling='median'", "pooling must be one of cls, mean, last, max, weighted, own"),
        ("[model.mine]\nid='a'\nsimilarity='l2'", "similarity must be one of cosine, dot"),
        ("[model.mine]\nid='a'\ndtype='int8'", "dtype=int8 needs backend=onnx"),
        ("[model.mine]\nid='a'\npooling='own'", "needs remote_code=true"),
        ("[model.mine]\nid='a'\nmax_document=-1", "a max length of -1 tokens"),
    ],
)
def test_mistakes_in_a_file_of_ones_own_are_one_line(text, message):
    (home() / "encoders.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        cards()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet=st.characters(exclude_characters="{}"), max_size=60))
def test_a_prompt_without_places_is_itself(text):
    assert Template(text).render(task("Biology")) == text


@given(
    st.lists(
        st.sampled_from([*(f"{{{name}}}" for name in task("Biology").words), "{", "}", "{}", "{ noun }", "{0}", "x"]),
        max_size=8,
    )
)
def test_only_the_words_of_a_task_are_put_in(pieces):
    known = task("PMC-Clinical")
    wanted = "|".join(str(getattr(known, piece[1:-1])) if piece[1:-1] in known.words else piece for piece in pieces)
    assert Template("|".join(pieces)).render(known) == wanted


def test_prompts_by_role():
    from r2med.encode.encoder import Role

    prompts = Prompts("q", "d")
    assert (prompts.of(Role.QUERY), prompts.of(Role.DOCUMENT)) == ("q", "d")


def test_billions_of_weights_ask_for_a_gpu():
    assert EncoderCard("x", "y", parameters=7000).needs_gpu
    assert not EncoderCard("x", "y", parameters=335).needs_gpu
    with pytest.raises(R2medError, match="do not go together"):
        EncoderCard("x", "y", pooling="weighted", exclude_prompt=True)
