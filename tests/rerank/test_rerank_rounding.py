"""Scores of a cross-encoder do not depend on the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import needs
from r2med.models.memory import ROUNDING

pytestmark = needs.packages("torch", "transformers")

SCRIPT = """
import sys

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from r2med.encode.loading import Build
from r2med.models.tokenizer import Padded
from r2med.rerank.pair_models import TorchPairModel

torch.manual_seed(3)
config = BertConfig(vocab_size=999, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_labels=1)
BertForSequenceClassification(config).save_pretrained(sys.argv[1])
model = TorchPairModel(Build(sys.argv[1]), None, (), "cpu")
different = 0
for width in range(100, 260, 20):
    ids = np.random.default_rng(width).integers(1, 999, (1024 // width, width))
    scores = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        scores.append(model.columns(Padded(ids, np.ones_like(ids), np.zeros_like(ids))).tobytes())
    different += scores[0] != scores[1]
print(different)
"""


def test_scores_are_the_same_with_one_thread_and_with_two(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != ROUNDING}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model")]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout == "0\n", found.stderr[-2000:]
