"""Loading a model folder into torch modules: the right class, every weight checked, the adapter merged."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from r2med.encode.cards import POOLING_MODES, SPARSE_POOLINGS
from r2med.errors import R2medError, require_extra
from r2med.formatting import counted, first_line
from r2med.models.memory import fix_rounding, out_of_memory
from r2med.models.source import WEIGHTS
from r2med.models.tokenizer import Tokenizer, pretrained_tokenizer

if TYPE_CHECKING:
    import torch

_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Architectures of which only the encoder is run."""
_PRETRAINING = ("pooler", "cls.", "lm_head", "head.dense", "head.norm", "decoder.", "position_ids", "prediction")
"""Parts of names of weights that only pretraining used."""
_INLINE = "linear.weight"
"""The name of the projection in the weights of a Stanford checkpoint."""
_ROTARY_FIELDS = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act max_position_embeddings"
    " type_vocab_size layer_norm_eps pad_token_id bos_token_id eos_token_id"
).split()
"""Settings of XLM-RoBERTa with rotary positions that transformers' class has under the same name."""


@dataclass(frozen=True)
class Build:
    """Settings that the loaded model depends on; equal ones share one model in memory."""

    folder: str
    subfolder: str = ""
    pooling: str = "mean"
    attention: str = ""
    normalize: bool = False
    append_eos: bool = False
    padding: str = "right"
    dense: tuple[str, ...] = ()
    inline: bool = False  # whether the projection of the tokens' vectors is among the transformer's weights
    dtype: str = "float32"
    remote_code: bool = False
    adapter: str = ""
    autoencoder: str = ""  # the folder of a sparse autoencoder after the pooling
    max_terms: int = 0  # how many of its numbers are kept of each vector

    @classmethod
    def of(cls, card: object, **others: Any) -> Build:
        """Build from the fields of a card that have the same names, and from others."""
        names = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in vars(card).items() if name in names} | others)

    @property
    def transformer(self) -> Path:
        """Return the folder with the transformer's own files."""
        return Path(self.folder) / self.subfolder

    def tokenizer(self) -> Tokenizer:
        """Read the model's tokenizer."""
        return pretrained_tokenizer(self.transformer, append_eos=self.append_eos, remote_code=self.remote_code)

    @property
    def size(self) -> int:
        """Return the bytes of the weights in the folder."""
        return sum(
            file.stat().st_size for file in self.transformer.iterdir() if file.suffix in (".safetensors", ".bin")
        )


def load_transformer(build: Build, *, eager: bool = False) -> torch.nn.Module:
    """Load the transformer with its weights, in evaluation mode, on the processor.

    In a late-interaction model, a weight without a place in the transformer is an error, for it may be a projection.
    """
    require_extra("torch", "torch", "transformers", "safetensors")
    import transformers

    with quietly(), load_errors(build):
        stated = _stated_config(build)
        if is_rotary_roberta(stated) and not build.remote_code:
            config = _rotary_config(stated)
        else:
            config = transformers.AutoConfig.from_pretrained(build.transformer, trust_remote_code=build.remote_code)
    sparse, late = build.pooling in SPARSE_POOLINGS, build.pooling == "tokens"
    kind = "AutoModelForMaskedLM" if sparse else _ENCODERS.get(config.model_type, "AutoModel")
    model, loaded = load_pretrained(build, kind, eager=eager, config=config)
    missing = [name for name in loaded["missing_keys"] if "pooler" not in name]
    # The code of a repository may fill weights by itself, but no late-interaction model is known that does.
    if missing and (late or not build.remote_code):
        runs_code = "AutoModel" in (stated.get("auto_map") or {}) and not build.remote_code
        hint = "; it comes with Python code of its own: add remote_code=true if you trust it" if runs_code else ""
        weights = counted(len(missing), "weight")
        raise R2medError(f"{build.folder}: its files lack {weights} of the model, {min(missing)} among them{hint}")
    unread = set(loaded["unexpected_keys"] if late else ()).difference([_INLINE] if build.inline else [])
    if spare := [name for name in unread if not any(part in name for part in _PRETRAINING)]:
        weights = counted(len(spare), "weight")
        raise R2medError(f"{build.folder}: {weights} of its files would be dropped, {min(spare)} among them")
    if build.adapter:
        model = _merge_adapter(model, build)
    return model.eval().requires_grad_(False)  # type: ignore[no-any-return]  # transformers is not typed


def load_pretrained(build: Build, kind: str, *, eager: bool, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Load a model by a class of transformers; returns also what the library says of its weights."""
    fix_rounding()
    import torch
    import transformers

    # A tracer cannot look into fused attention, so an export asks for the plain one.
    if eager:
        options["attn_implementation"] = "eager"
    with quietly(), load_errors(build):
        model, loaded = getattr(transformers, kind).from_pretrained(
            build.transformer,
            dtype=getattr(torch, build.dtype),
            trust_remote_code=build.remote_code,
            output_loading_info=True,
            **options,
        )
    return model, loaded


def _stated_config(build: Build) -> dict[str, Any]:
    file = build.transformer / "config.json"
    stated = orjson.loads(file.read_bytes()) if file.is_file() else {}
    return stated if isinstance(stated, dict) else {}


def is_rotary_roberta(stated: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` is of XLM-RoBERTa with rotary positions, without adapters for several tasks.

    Such checkpoints name Python code written for transformers 4; a class of transformers reads the same weights.
    """
    rotary = stated.get("model_type") == "xlm-roberta" and stated.get("position_embedding_type") == "rotary"
    return rotary and not stated.get("lora_adaptations")


def _rotary_config(stated: Mapping[str, Any]) -> Any:
    import transformers

    config = getattr(transformers, "JinaEmbeddingsV3Config", None)
    if config is None:
        installed = f"transformers {transformers.__version__}"
        raise R2medError(f"{installed} cannot run XLM-RoBERTa with rotary positions: pip install -U transformers")
    positions = {"rope_type": "default", "rope_theta": float(stated.get("rotary_emb_base") or 10_000)}
    return config(**{name: stated[name] for name in _ROTARY_FIELDS if name in stated}, rope_parameters=positions)


def _merge_adapter(model: Any, build: Build) -> Any:
    require_extra("lora", "peft")
    from peft import PeftConfig, PeftModel
    from peft.utils import load_peft_weights

    wrapped = PeftModel(model, PeftConfig.from_pretrained(build.adapter))
    parameters = {name.replace(".default", "") for name, _ in wrapped.named_parameters()}
    weights = load_peft_weights(build.adapter, device="cpu")
    homeless = [name for name in weights if name not in parameters]
    if homeless or not weights:
        problem = f"{homeless[0]} has no place in {build.folder}" if homeless else "it has no weights"
        raise R2medError(f"{build.adapter}: the adapter does not fit the model ({problem})")
    with quietly():
        wrapped.load_adapter(build.adapter, "default")
    return wrapped.merge_and_unload()


def load_head(build: Build) -> torch.nn.Module:
    """Load what follows the transformer: from the vectors of tokens to the vector of a text, or to other ones."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SpladePooling
    from torch.nn import Sequential

    modules: list[torch.nn.Module] = []
    vectors = "token_embeddings" if build.pooling == "tokens" else "sentence_embedding"
    if build.pooling in SPARSE_POOLINGS:
        modules.append(SpladePooling(*SPARSE_POOLINGS[build.pooling]))
    elif build.pooling in POOLING_MODES:
        # The dimension is for sentence-transformers' own records.
        modules.append(Pooling(1, POOLING_MODES[build.pooling]))
    modules += [_load_inline(build, vectors)] if build.inline else _load_dense(build, vectors)
    if build.normalize:
        modules.append(Normalize(vectors))
    if build.autoencoder:
        sparsify = _load_module(SparseAutoEncoder, build, build.autoencoder)
        sparsify.k = min(build.max_terms, sparsify.hidden_dim)
        modules.append(sparsify)
    return Sequential(*modules).float().eval().requires_grad_(False)


def _load_dense(build: Build, vectors: str) -> list[torch.nn.Module]:
    """Load the linear layers that are applied to the vectors of texts, or of tokens."""
    from sentence_transformers.base.modules import Dense
    from torch.nn import Identity

    layers: list[torch.nn.Module] = []
    for name in build.dense:
        with load_errors(build):
            stated = orjson.loads((Path(build.folder) / name / "config.json").read_bytes())
        activation = str(stated.get("activation_function", "torch.nn.Identity"))
        # Any other would be replaced by a Tanh, in silence.
        if not activation.startswith("torch.nn."):
            plain = activation.rpartition(".")[2]
            raise R2medError(f"{build.folder}/{name}: the activation {plain} is not one of torch.nn")
        defaults = {"module_input_name": vectors, "activation_function": Identity()}
        layers.append(_load_module(Dense, build, name, init_defaults=defaults))
    return layers


def _load_module(kind: Any, build: Build, name: str, **options: Any) -> Any:
    with load_errors(build):
        try:
            return kind.load(build.folder, subfolder=name, local_files_only=True, **options)
        except RuntimeError as error:
            folder = Path(build.folder) / name
            raise R2medError(f"{folder}: its weights are not those of the layer that config.json describes") from error


def _load_inline(build: Build, vectors: str) -> torch.nn.Module:
    """Load the projection that is stored among the transformer's weights."""
    from sentence_transformers.base.modules import Dense
    from torch.nn import Identity

    weight = stored_weight(build.transformer, _INLINE)
    if weight is None:
        raise R2medError(f"{Path(build.folder)}: no {_INLINE} among its weights, which would be its projection")
    activation = {"activation_function": Identity(), "module_input_name": vectors}
    outputs, inputs = weight.shape
    layer: torch.nn.Module = Dense(inputs, outputs, bias=False, init_weight=weight.float(), **activation)
    return layer


def stored_weight(folder: Path, name: str) -> torch.Tensor | None:
    """Read one weight of a model's files without the others; None if none has that name."""
    import torch
    from safetensors import safe_open

    for file in (folder / file_name for file_name in WEIGHTS):
        index = file.with_name(f"{file.name}.index.json")
        if index.is_file():
            file = folder / orjson.loads(index.read_bytes()).get("weight_map", {}).get(name, file.name)
        if file.is_file() and file.suffix != ".safetensors":
            # Read by torch's restricted loader, which makes tensors and runs nothing.
            return torch.load(file, weights_only=True).get(name)  # type: ignore[no-any-return]  # whatever it holds
        if file.is_file():
            with safe_open(file, framework="pt") as weights:
                return weights.get_tensor(name) if name in weights.keys() else None  # noqa: SIM118  # not a dict
    return None


def accepted(model: Any) -> frozenset[str]:
    """Return the parameter names of a model's forward."""
    return frozenset(inspect.signature(model.forward).parameters)


@contextmanager
def load_errors(build: Build) -> Iterator[None]:
    """Convert errors of loading a model into errors of one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        line = f"{build.folder}: not a model that can be loaded ({first_line(error)})"
        if "trust_remote_code" in str(error):
            line = f"{build.folder} runs Python code of its own; add remote_code=true if you trust it"
        raise R2medError(line) from error
    except Exception as error:  # whatever the code of a repository may raise
        _blame_code(build, error)
        raise


@contextmanager
def inference(build: Build, device: object) -> Iterator[None]:
    """Run a model in inference mode; raise `MemoryError` if memory runs out, and one line if its own code fails."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{device} is full") from error
    except Exception as error:  # whatever the code of a repository may raise
        _blame_code(build, error)
        raise


def _blame_code(build: Build, error: Exception) -> None:
    """Raise one line if the Python code of a repository failed, with the alternative."""
    if not build.remote_code or isinstance(error, R2medError) or out_of_memory(error):
        return
    version = importlib.import_module("transformers").__version__
    reason = f"its own Python code does not run with transformers {version} ({first_line(error)})"
    if is_rotary_roberta(_stated_config(build)):
        reason += "; without remote_code=true, transformers' own class runs this model"
    raise R2medError(f"{build.folder}: {reason}") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the library's reports and progress bars: what matters in them is checked by the caller."""
    reports: Any = importlib.import_module("transformers.utils.logging")
    bars, level = reports.is_progress_bar_enabled(), reports.get_verbosity()
    reports.disable_progress_bar()
    reports.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()


def positions_of(model: Any) -> int:
    """Return the tokens that a model with a table of positions can read; 0 for one without a table."""
    inner = getattr(model, getattr(model, "base_model_prefix", "") or "_", model)
    table = getattr(getattr(inner, "embeddings", None), "position_embeddings", None)
    if table is None or not hasattr(table, "num_embeddings"):
        return 0
    # RoBERTa's positions start after the padding's.
    return int(table.num_embeddings) - (0 if table.padding_idx is None else table.padding_idx + 1)
