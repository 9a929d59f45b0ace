"""WordLlama's static vectors against the package itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from encoders import context
from r2med.data.dataset import Texts
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Prompts, Role
from r2med.encode.static import WordLlamaEncoder
from r2med.errors import R2medError

wordllama = pytest.importorskip("wordllama")

TEXTS = [
    "A 54-year-old man with crushing chest pain and ST elevation in II, III and aVF.",
    "β-blockers reduce mortality after myocardial infarction.",
    "x",
    "naïve CD4⁺ T cells — 高血压 🫀 " * 30,
    "line\nbreaks\tand   spaces ",
]


@pytest.fixture(scope="module")
def package():
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


def test_the_same_vectors_as_the_package(package):
    encoder = WordLlamaEncoder()
    encoder.load()
    np.testing.assert_allclose(encoder.encode(TEXTS, Role.DOCUMENT), package.embed(TEXTS), atol=1e-6)


def test_a_text_alone_or_among_others_is_the_same():
    encoder = WordLlamaEncoder()
    together = encoder.encode(TEXTS, Role.DOCUMENT)
    alone = np.concatenate([encoder.encode([text], Role.DOCUMENT) for text in TEXTS])
    np.testing.assert_array_equal(together, alone)


def test_lengths_are_tokens_before_the_cut(package):
    encoder = WordLlamaEncoder(max_length=4)
    wanted = [len(package.tokenizer.encode(text, add_special_tokens=False).ids) for text in TEXTS]
    assert encoder.lengths(TEXTS, Role.QUERY).tolist() == wanted
    assert encoder.limit(Role.QUERY) == 4
    first = package.tokenizer.encode(TEXTS[0], add_special_tokens=False).ids[:4]
    np.testing.assert_allclose(
        encoder.encode(TEXTS[:1], Role.QUERY)[0], package.embedding[first].mean(axis=0), atol=1e-6
    )


def test_truncation_is_reported_through_the_loop():
    texts, notes = Texts([f"d{number}" for number in range(len(TEXTS))], TEXTS), context()
    encode_all(WordLlamaEncoder(max_length=10), texts, Role.DOCUMENT, notes)
    facts = notes.notes.facts["documents"]
    assert (facts["truncated"], facts["max_tokens"], facts["dimension"]) == (3, 10, 256)


def test_prompts_are_encoded_with_the_text():
    encoder = WordLlamaEncoder(prompts=Prompts("query: "))
    assert encoder.prompted("pain", Role.QUERY) == "query: pain"
    np.testing.assert_array_equal(
        encoder.encode(["pain"], Role.QUERY), WordLlamaEncoder().encode(["query: pain"], Role.DOCUMENT)
    )
    assert encoder.settings(Role.QUERY) != WordLlamaEncoder().settings(Role.QUERY)
    assert encoder.for_passages().prompted("pain", Role.QUERY) == "pain"


def test_a_broken_character_does_not_stop_it():
    assert np.isfinite(WordLlamaEncoder().encode(["half \ud83e of a pair"], Role.QUERY)).all()


def test_a_negative_length_is_refused():
    with pytest.raises(R2medError, match="max_length"):
        WordLlamaEncoder(max_length=-1)


def test_the_package_itself_is_not_imported():
    program = (
        "import sys; from r2med.encode.static import WordLlamaEncoder; from r2med.encode.encoder import Role;"
        "WordLlamaEncoder().encode(['a'], Role.QUERY); print('wordllama' in sys.modules, 'torch' in sys.modules)"
    )
    import r2med

    made = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(r2med.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert made.stdout.split() == ["False", "False"], made.stderr
