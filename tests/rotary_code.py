"""Python code that comes with a model, as a repository of the hub may have it: XLM-RoBERTa with rotary positions.

`late_models.save_jina` copies this file into the folder of a tiny model, and it runs only where it is trusted. Weights
have the names that they have in Jina's checkpoints, and positions are turns of complex numbers: no line is shared with
the class of transformers that it is compared with.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class RotaryConfig(PreTrainedConfig):
    """Settings as in the `config.json` of jina-colbert-v2."""

    model_type = "xlm-roberta"

    hidden_size: int = 32
    intermediate_size: int = 48
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    vocab_size: int = 100
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    rotary_emb_base: float = 10000.0


class Mixer(nn.Module):
    """Attention of every token to every other, queries, keys and values from one matrix."""

    def __init__(self, config: RotaryConfig) -> None:
        super().__init__()
        self.heads, self.base = config.num_attention_heads, config.rotary_emb_base
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def turned(self, vectors: torch.Tensor) -> torch.Tensor:
        """Each pair of numbers as a complex one, turned by an angle that grows with the place of the token."""
        first, second = vectors.chunk(2, dim=-1)
        steps = self.base ** -(torch.arange(first.shape[-1]) / first.shape[-1])
        angles = torch.outer(torch.arange(vectors.shape[-2]), steps)
        found = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([found.real, found.imag], dim=-1)

    def forward(self, states: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.Wqkv(states).chunk(3, dim=-1)
        )
        scores = self.turned(query) @ self.turned(key).transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~seen[:, None, None, :], -torch.inf).softmax(dim=-1)
        mixed: torch.Tensor = self.out_proj((weights @ value).transpose(1, 2).flatten(-2))
        return mixed


class Block(nn.Module):
    """A layer, normalised after each of its two steps."""

    def __init__(self, config: RotaryConfig) -> None:
        super().__init__()
        self.mixer = Mixer(config)
        self.mlp = nn.ModuleDict(
            {
                "fc1": nn.Linear(config.hidden_size, config.intermediate_size),
                "fc2": nn.Linear(config.intermediate_size, config.hidden_size),
            }
        )
        self.norm1, self.norm2 = (nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) for _ in range(2))

    def forward(self, states: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        states = self.norm1(states + self.mixer(states, seen))
        wide = nn.functional.gelu(self.mlp["fc1"](states))
        found: torch.Tensor = self.norm2(states + self.mlp["fc2"](wide))
        return found


class RotaryModel(PreTrainedModel):
    """The encoder without a head."""

    config_class = RotaryConfig
    base_model_prefix = "roberta"

    def __init__(self, config: RotaryConfig, *, add_pooling_layer: bool = False) -> None:
        super().__init__(config)
        sizes = {"word_embeddings": config.vocab_size, "token_type_embeddings": config.type_vocab_size}
        self.embeddings = nn.ModuleDict({name: nn.Embedding(size, config.hidden_size) for name, size in sizes.items()})
        self.emb_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))})
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: object
    ) -> BaseModelOutput:
        kind = self.embeddings["token_type_embeddings"].weight[0]
        states = self.emb_ln(self.embeddings["word_embeddings"](input_ids) + kind)
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        for layer in self.encoder["layers"]:
            states = layer(states, seen.bool())
        return BaseModelOutput(last_hidden_state=states)
