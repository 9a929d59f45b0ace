"""Record the vectors that PyLate gives texts with tiny checkpoints, for the tests to compare ours with.

    python -m venv pylate && pylate/bin/pip install pylate==1.6.0
    python scripts/record_pylate_vectors.py pylate/bin/python [--out tests/encode/pylate_vectors.npz]

PyLate asks for a sentence-transformers of its own (1.6.0 for 5.3.0; 1.0.0 does not load with 6 either), so it has an
environment of its own: the checkpoints are written here, and this file is run once more there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

ROOT = Path(__file__).parents[1]
FAMILIES = ("stanford-bert", "jina", "pylate-modernbert", "pylate-unexpanded", "pylate-edge")
"""Checkpoints that PyLate reads as sentence-transformers does."""
_JINA = {"query_prefix": "[QueryMarker]", "document_prefix": "[DocumentMarker]", "attend_to_expansion_tokens": True}
"""What Jina's model card tells users of PyLate to add."""


def write_checkpoints(folder: Path) -> None:
    """The checkpoints, and the texts in a file beside them."""
    sys.path.insert(0, str(ROOT / "tests"))
    import late_models

    for family in FAMILIES:
        late_models.FAMILIES[family](folder / family)
    # A marker or mask that stands in a text is read as one by some and as letters by others.
    texts = {"query": late_models.QUERIES[:2], "document": late_models.DOCUMENTS[:3]}
    (folder / "texts.json").write_text(json.dumps(texts))


def encode_checkpoints(folder: Path, out: Path) -> None:
    """The vectors of all texts with every checkpoint, by PyLate."""
    from pylate.models import ColBERT

    texts = json.loads((folder / "texts.json").read_text())
    found = {}
    for family in FAMILIES:
        model = ColBERT(
            str(folder / family), device="cpu", trust_remote_code=True, **(_JINA if family == "jina" else {})
        )
        for role, written in texts.items():
            for place, vectors in enumerate(model.encode(written, is_query=role == "query")):
                found[f"{family}/{role}/{place}"] = np.asarray(vectors, dtype=np.float32)
    np.savez_compressed(out, **found)


@click.command()
@click.argument("python")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "tests/encode/pylate_vectors.npz")
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(python: str, out: Path, folder: Path | None) -> None:
    """Record with the PyLate of the environment whose interpreter is PYTHON."""
    if folder is not None:
        encode_checkpoints(folder, out)
        return
    with tempfile.TemporaryDirectory() as made:
        write_checkpoints(Path(made))
        subprocess.run([python, __file__, python, "--out", str(out), "--folder", made], check=True)


if __name__ == "__main__":
    main()
