"""Token vectors of tiny models of every architecture on the cards, compared with those of other libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from record_pylate_vectors import FAMILIES as RECORDED
from safetensors.torch import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel

from late_models import ARCHITECTURES, DOCUMENTS, FAMILIES, QUERIES, reference
from r2med.encode.encoder import Role
from r2med.encode.late_cards import late_cards
from r2med.encode.late_interaction import token_pieces
from r2med.retrieve.colbert import ColBERT

TEXT = "The fever, \ud83d and a rash."
TEXTS = {Role.QUERY: QUERIES, Role.DOCUMENT: DOCUMENTS}


def check_equal(found, wanted):
    """Vectors of the same texts by two libraries: as many, and the same to 1e-5."""
    assert [each.shape for each in found] == [each.shape for each in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=0)


def test_every_card_has_a_tiny_model_of_its_architecture():
    assert ARCHITECTURES.keys() == late_cards().keys()
    assert set(ARCHITECTURES.values()) <= FAMILIES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_token_vectors_and_scores_are_those_of_sentence_transformers(family, tmp_path):
    folder = FAMILIES[family](tmp_path / "model")
    theirs, ours = reference(folder), ColBERT(str(folder)).encoder
    wanted = {
        Role.QUERY: theirs.encode_query(QUERIES, convert_to_numpy=True),
        Role.DOCUMENT: theirs.encode_document(DOCUMENTS, convert_to_numpy=True),
    }
    found = {role: ours.encode(texts, role) for role, texts in TEXTS.items()}
    for role in Role:
        check_equal(found[role], wanted[role])
    scores = theirs.similarity(wanted[Role.QUERY], wanted[Role.DOCUMENT]).numpy()
    mine = [
        [(document @ query.T).max(axis=0).sum() for document in found[Role.DOCUMENT]] for query in found[Role.QUERY]
    ]
    np.testing.assert_allclose(mine, scores, atol=1e-5 * 24)


@pytest.mark.parametrize("family", RECORDED)
def test_token_vectors_are_those_of_pylate(family, tmp_path):
    ours = ColBERT(str(FAMILIES[family](tmp_path / "model"))).encoder
    with np.load(Path(__file__).with_name("pylate_vectors.npz")) as recorded:
        for role, count in ((Role.QUERY, 2), (Role.DOCUMENT, 3)):
            wanted = [recorded[f"{family}/{role.value}/{place}"] for place in range(count)]
            check_equal(ours.encode(TEXTS[role][:count], role), wanted)


def test_a_projection_is_found_in_whichever_file_of_several_it_lies(tmp_path):
    whole, folder = (FAMILIES["stanford-bert"](tmp_path / name) for name in ("whole", "parts"))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {"model-1-of-2.safetensors": list(weights)[::2], "model-2-of-2.safetensors": list(weights)[1::2]}
    for file, names in parts.items():
        save_file({name: weights[name] for name in names}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, names in parts.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found, wanted = (ColBERT(str(each)).encoder.encode(QUERIES, Role.QUERY) for each in (folder, whole))
    check_equal(found, wanted)


@pytest.mark.parametrize("family", ["stanford-bert", "jina", "pylate-edge", "bytes"])
def test_every_token_with_a_vector_is_where_it_stands_in_the_text(family, tmp_path):
    folder, text = FAMILIES["stanford-bert" if family == "bytes" else family](tmp_path / "model"), TEXT
    encoder = ColBERT(str(folder)).encoder
    if family == "bytes":  # a word with the space before it, the first one with that of the prefix
        encoder.tokenizer.backend.pre_tokenizer = ByteLevel(add_prefix_space=False, trim_offsets=False)
    pieces = token_pieces(encoder, text, Role.DOCUMENT)
    assert len(pieces) == len(encoder.encode([text], Role.DOCUMENT)[0])
    written = [piece for piece in pieces if piece.start >= 0]
    assert all(text[piece.start : piece.end] == piece.text for piece in written)
    assert "".join(piece.text for piece in written).replace(" ", "").startswith("Thefever")


def test_code_of_the_models_own_runs_only_when_it_is_trusted_and_gives_the_same_vectors(tmp_path):
    folder = FAMILIES["jina"](tmp_path / "model")
    plain, trusted = (ColBERT(str(folder), remote_code=said).encoder for said in (False, True))
    for role, texts in TEXTS.items():
        check_equal(trusted.encode(texts, role), plain.encode(texts, role))
    kinds = [type(encoder._runner().model).__module__ for encoder in (plain, trusted)]
    assert kinds[0].startswith("transformers.models.jina_embeddings_v3")
    assert kinds[1].endswith("modeling_rotary")
