from __future__ import annotations

import numpy as np
import pytest

from late_models import reference, save_native, save_pylate, save_stanford
from r2med.encode.encoder import Role
from r2med.retrieve.colbert import ColBERT

QUERIES = ["which nerve is injured when the wrist drops?", "fever", "a very long question, " * 6]
DOCUMENTS = [
    "Metformin lowers hepatic glucose production.",
    "A 54-year-old man has crushing chest pain radiating to the left arm; sweating, nausea (since this morning).",
    "fever!",
    "[D] [MASK] ... unused words",
]
FAMILIES = {
    "stanford-bert": lambda folder: save_stanford("bert", folder),
    "stanford-xlm-roberta": lambda folder: save_stanford("xlm-roberta", folder, attend_to_mask_tokens=True),
    "stanford-modernbert": lambda folder: save_stanford("modernbert", folder, mask_punctuation=False),
    "pylate-modernbert": lambda folder: save_pylate("modernbert", folder, model_type="ColBERT"),
    "pylate-old-bert": lambda folder: save_pylate("bert", folder),
    "pylate-unexpanded": lambda folder: save_pylate("modernbert", folder, do_query_expansion=False),
    "pylate-attended": lambda folder: save_pylate("xlm-roberta", folder, attend_to_expansion_tokens=True),
    "native-bert": lambda folder: save_native("bert", folder),
    "native-residual": lambda folder: save_native("modernbert", folder, residual=True),
    "native-min": lambda folder: save_native(
        "modernbert", folder, query_expansion={"strategy": "min", "attend": True, "length": 24}
    ),
    "pylate-lower": lambda folder: save_pylate("bert", folder, lower=True),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_token_vectors_and_scores_are_those_of_sentence_transformers(family, tmp_path):
    folder = FAMILIES[family](tmp_path / "model")
    theirs, ours = reference(folder), ColBERT(str(folder)).encoder
    wanted = {
        Role.QUERY: theirs.encode_query(QUERIES, convert_to_numpy=True),
        Role.DOCUMENT: theirs.encode_document(DOCUMENTS, convert_to_numpy=True),
    }
    found = {Role.QUERY: ours.encode(QUERIES, Role.QUERY), Role.DOCUMENT: ours.encode(DOCUMENTS, Role.DOCUMENT)}
    for role in Role:
        assert [len(each) for each in found[role]] == [len(each) for each in wanted[role]]
        for mine, yours in zip(found[role], wanted[role], strict=True):
            np.testing.assert_allclose(mine, yours, atol=1e-5)
    scores = theirs.similarity(wanted[Role.QUERY], wanted[Role.DOCUMENT]).numpy()
    mine = [
        [(document @ query.T).max(axis=0).sum() for document in found[Role.DOCUMENT]] for query in found[Role.QUERY]
    ]
    np.testing.assert_allclose(mine, scores, atol=1e-5 * 24)
