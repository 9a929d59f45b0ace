"""Loading a model folder into a torch module: the right class, every weight checked, the adapter merged."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from r2med.encode.rotary_roberta import is_rotary_roberta, rotary_config
from r2med.errors import R2medError, require_extra
from r2med.formatting import counted, first_line
from r2med.models.memory import fix_rounding, out_of_memory
from r2med.models.source import WEIGHTS

if TYPE_CHECKING:
    import torch

_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Architectures of which only the encoder is run."""
_HEADS = {"fill-mask": "AutoModelForMaskedLM"}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU")


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
    dtype: str = "float32"
    remote_code: bool = False
    adapter: str = ""
    head: str = ""
    """`fill-mask` for a transformer with its head over the vocabulary."""
    autoencoder: str = ""
    """The folder of a sparse autoencoder after the pooling."""
    max_terms: int = 0
    """How many of its numbers are kept of each vector."""

    @property
    def transformer(self) -> Path:
        """Return the folder with the transformer's own files."""
        return Path(self.folder) / self.subfolder

    @property
    def size(self) -> int:
        """Return the bytes of the weights in the folder."""
        files = (path for path in self.transformer.iterdir() if path.suffix in (".safetensors", ".bin"))
        return sum(path.stat().st_size for path in files)


def load_transformer(build: Build, *, eager: bool = False, beside: Sequence[str] | None = None) -> torch.nn.Module:
    """Load the transformer with its weights, in evaluation mode, on the processor.

    `beside` names the weights in its files that the caller reads itself. If it is given, any other weight without a
    place in the transformer is an error: a head that is dropped in silence would change every result.
    """
    require_extra("torch", "torch", "transformers", "safetensors")
    fix_rounding()
    import torch
    import transformers

    # A tracer cannot look into fused attention, so an export asks for the plain one.
    options: dict[str, Any] = {"attn_implementation": "eager"} if eager else {}
    with quietly(), load_errors(build):
        config = _config(build)
        known = _HEADS.get(build.head) or _ENCODERS.get(config.model_type, "AutoModel")
        kind = getattr(transformers, known)
        model, loaded = kind.from_pretrained(
            build.transformer,
            config=config,
            dtype=getattr(torch, build.dtype),
            trust_remote_code=build.remote_code,
            output_loading_info=True,
            **options,
        )
    _check_weights(build, loaded, beside)
    if build.adapter:
        model = _with_adapter(model, build)
    ready: torch.nn.Module = model.eval().requires_grad_(False)
    return ready


def _config(build: Build) -> Any:
    """Load the transformer's configuration for the class that runs it."""
    from transformers import AutoConfig

    told = _stated_config(build)
    if is_rotary_roberta(told) and not build.remote_code:
        return rotary_config(told)
    return AutoConfig.from_pretrained(build.transformer, trust_remote_code=build.remote_code)


def _stated_config(build: Build) -> dict[str, Any]:
    file = build.transformer / "config.json"
    told = orjson.loads(file.read_bytes()) if file.is_file() else {}
    return told if isinstance(told, dict) else {}


def _check_weights(build: Build, loaded: dict[str, Any], beside: Sequence[str] | None) -> None:
    """Refuse a model of which a part would be random, and one of which a head would be dropped."""
    lost = [name for name in loaded["missing_keys"] if "pooler" not in name]
    spare = [] if beside is None else [name for name in loaded["unexpected_keys"] if _is_head(name, beside)]
    # The code of a repository may fill weights by itself, but nothing is known of late interaction that does.
    if lost and not (build.remote_code and beside is None):
        code = "AutoModel" in (_stated_config(build).get("auto_map") or {}) and not build.remote_code
        hint = "; it comes with Python code of its own: add remote_code=true if you trust it" if code else ""
        what = f"its files lack {counted(len(lost), 'weight')} of the model"
        raise R2medError(f"{build.folder}: {what}, {min(lost)} among them{hint}")
    if spare:
        what = f"{counted(len(spare), 'weight')} of its files would be dropped"
        raise R2medError(f"{build.folder}: {what}, {min(spare)} among them")


_PRETRAINING = ("pooler", "cls.", "lm_head", "head.dense", "head.norm", "decoder.", "position_ids", "prediction")
"""Parts of names of weights that only pretraining used."""


def _is_head(name: str, beside: Sequence[str]) -> bool:
    return name not in beside and not any(part in name for part in _PRETRAINING)


def _with_adapter(model: Any, build: Build) -> Any:
    require_extra("lora", "peft")
    from peft import PeftConfig, PeftModel
    from peft.utils import load_peft_weights

    config = PeftConfig.from_pretrained(build.adapter)
    wrapped = PeftModel(model, config)
    names = {name for name, _ in wrapped.named_parameters()}
    weights = load_peft_weights(build.adapter, device="cpu")
    inner = [name for name in weights if _adapted(name) not in names]
    if inner or not weights:
        what = f"{inner[0]} has no place in {build.folder}" if inner else "it has no weights"
        raise R2medError(f"{build.adapter}: the adapter does not fit the model ({what})")
    with quietly():
        wrapped.load_adapter(build.adapter, "default")
    return wrapped.merge_and_unload()


def _adapted(name: str) -> str:
    """Return the parameter of the wrapped model that a weight in an adapter's file belongs to."""
    head, _, kind = name.rpartition(".")
    return f"{head}.default.{kind}" if head.endswith(("lora_A", "lora_B")) else name


def load_dense(build: Build) -> list[torch.nn.Module]:
    """Load the linear layers after the pooling, as sentence-transformers stores them."""
    import torch
    from safetensors.torch import load_file

    layers: list[torch.nn.Module] = []
    for name in build.dense:
        folder = Path(build.folder) / name
        if not (folder / "config.json").is_file():
            raise R2medError(f"{folder}: no config.json of the layer")
        config = orjson.loads((folder / "config.json").read_bytes())
        activation = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            raise R2medError(f"{folder}: the activation {activation} is not one of {', '.join(_ACTIVATIONS)}")
        file = folder / "model.safetensors"
        # An older file is read by torch's restricted loader, which makes tensors and runs nothing.
        weights = load_file(file) if file.is_file() else torch.load(folder / "pytorch_model.bin", weights_only=True)
        around = weights.pop("residual.weight", None) if config.get("use_residual") else None
        layer = torch.nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        try:
            layer.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in weights.items()})
        except RuntimeError as error:
            raise R2medError(f"{folder}: its weights are not those of the layer that config.json describes") from error
        steps = [layer, getattr(torch.nn, activation)()]
        layers += [_residual(steps, around)] if config.get("use_residual") else steps
    return [layer.to(torch.float32).eval().requires_grad_(False) for layer in layers]


def _residual(steps: Sequence[torch.nn.Module], weight: torch.Tensor | None) -> torch.nn.Module:
    """Wrap the steps so that their input is added to their output, through a matrix if the two differ in size."""
    import torch

    class Residual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = torch.nn.Sequential(*steps)
            self.around = None if weight is None else torch.nn.Parameter(weight)

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            beside = vectors if self.around is None else vectors @ self.around.T
            return self.steps(vectors) + beside  # type: ignore[no-any-return]  # modules are not typed

    return Residual()


def stored_weight(folder: Path, name: str) -> torch.Tensor | None:
    """Read one weight of a model's files without the others; None if none has that name."""
    for file in (folder / each for each in WEIGHTS):
        index = file.with_name(f"{file.name}.index.json")
        if index.is_file():
            file = folder / orjson.loads(index.read_bytes()).get("weight_map", {}).get(name, file.name)
        if file.is_file():
            return _weight_in(file, name)
    return None


def _weight_in(file: Path, name: str) -> torch.Tensor | None:
    import torch
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        # Read by torch's restricted loader, which makes tensors and runs nothing.
        return torch.load(file, weights_only=True).get(name)  # type: ignore[no-any-return]  # whatever the file holds
    with safe_open(file, framework="pt") as weights:
        return weights.get_tensor(name) if name in weights.keys() else None  # noqa: SIM118  # it is no dict


def load_autoencoder(build: Build) -> Callable[[torch.Tensor], torch.Tensor]:
    """Load the sparse autoencoder after the pooling; it keeps `max_terms` numbers."""
    import torch
    from safetensors.torch import load_file

    folder = Path(build.folder) / build.autoencoder
    file = folder / "model.safetensors"
    if not file.is_file():
        raise R2medError(f"{folder}: no model.safetensors of the sparse autoencoder")
    weights, config = load_file(file), orjson.loads((folder / "config.json").read_bytes())
    # Encoder and decoder share their weights, which are stored once, under either name.
    if "decoder.linear.weight" in weights:
        weights.setdefault("encoder.weight", weights["decoder.linear.weight"])
    lost = [name for name in ("encoder.weight", "pre_bias", "latent_bias") if name not in weights]
    if lost:
        raise R2medError(f"{folder}: the sparse autoencoder has no {' and no '.join(lost)}")

    def encode(vectors: torch.Tensor) -> torch.Tensor:
        if config.get("normalize"):
            vectors = vectors - vectors.mean(dim=-1, keepdim=True)
            vectors = vectors / (vectors.std(dim=-1, keepdim=True) + 1e-5)
        layer, before, after = (weights[name].to(vectors) for name in ("encoder.weight", "pre_bias", "latent_bias"))
        latents = torch.nn.functional.linear(vectors - before, layer, after)
        top = latents.topk(min(build.max_terms, latents.shape[-1]), dim=-1)
        return torch.zeros_like(latents).scatter_(-1, top.indices, top.values).relu()

    return encode


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
        if "trust_remote_code" in str(error):
            raise R2medError(
                f"{build.folder} runs Python code of its own; add remote_code=true if you trust it"
            ) from error
        raise R2medError(f"{build.folder}: not a model that can be loaded ({first_line(error)})") from error
    except Exception as error:  # whatever the code of a repository may raise
        if not _is_of_code(build, error):
            raise
        raise R2medError(f"{build.folder}: {_code_failure(build, error)}") from error


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
        if not _is_of_code(build, error):
            raise
        raise R2medError(f"{build.folder}: {_code_failure(build, error)}") from error


def _is_of_code(build: Build, error: Exception) -> bool:
    return build.remote_code and not isinstance(error, R2medError) and not out_of_memory(error)


def _code_failure(build: Build, error: Exception) -> str:
    """Describe a failure of the Python code of a repository, and the alternative."""
    version = importlib.import_module("transformers").__version__
    told = f"its own Python code does not run with transformers {version} ({first_line(error)})"
    other = "; without remote_code=true, transformers' own class runs this model"
    return told + (other if is_rotary_roberta(_stated_config(build)) else "")


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
    first = 0 if table.padding_idx is None else table.padding_idx + 1
    return int(table.num_embeddings) - first
