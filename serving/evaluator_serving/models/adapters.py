"""Models with a PEFT adapter (LoRA and its like): merged once into a folder of plain weights in the cache.

Every engine and every other part then knows one format only, and a score is the adapted model's everywhere. The folder is
named by the content of base model and adapter; what the merged weights say is compared with what PEFT says unmerged.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, content_hash
from evaluator_serving.errors import EngineError, InputError, first_line
from evaluator_serving.models.checkpoint import files_beside_weights, has_tokenizer, is_pickled, plain_source
from evaluator_serving.models.config import quiet
from evaluator_serving.models.next_sentence import next_sentence
from evaluator_serving.models.source import Adapter, ModelSource
from evaluator_serving.weights.hub import ADAPTER_CONFIG, ADAPTER_WEIGHTS

_TOLERANCE = 1e-3
"""How far merged and unmerged logits may differ, relative to the largest: float32's rounding, not another function."""

_NOT_THE_TOKENIZERS = ("config.json", "generation_config.json", ADAPTER_CONFIG, "trainer_state.json", "training.json")


Resolve = Callable[[str], ModelSource]
"""The source of a spec: an adapter's base may be anything that a spec can mean, an adapted model among it."""
Here = Callable[[ModelSource], contextlib.AbstractContextManager[ModelSource]]
"""The source with its weights on this machine."""


def has_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter."""
    return any((path / name).is_file() for name in (ADAPTER_CONFIG, *ADAPTER_WEIGHTS))


def adapted(
    spec: str,
    path: Path,
    commit: str | None,
    chat_template: str,
    *,
    resolve: Resolve,
    weights_here: Here,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> ModelSource:
    """The model of a folder with an adapter in it: of the weights that stand beside it, else of the base model that it names.

    Raises InputError where PEFT isn't installed, the base model can't be found, or the adapter can't be merged into it.
    """
    config = _read_config(path, spec)
    kind = str(config.get("peft_type"))
    try:
        peft = version("peft")
    except PackageNotFoundError as error:
        raise InputError(
            f"model {spec}: applying its {kind} adapter needs peft: pip install 'stereotype-evaluator[lora]', or give a folder "
            "that was saved after peft's merge_and_unload()"
        ) from error
    with contextlib.ExitStack() as stack:
        if _has_weights(path):
            alone = stack.enter_context(_without_adapter(path))
            base = plain_source(spec, alone, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
        else:
            base = _named_base(config, path, spec, resolve)
        pickled = is_pickled([_weights(path, spec).name], spec, allowed=allow_pickle)
        own = [path / ADAPTER_CONFIG, _weights(path, spec), *_tokenizer_files(path)]
        adapter = Adapter(kind, base.spec, base.revision, commit or content_hash(own))
        parts = [adapter.base_revision, adapter.revision, *([base.code.revision] if base.code else [])]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        folder = cache_dir() / "models" / f"adapted-{digest[:32]}-{peft}"
        if not (folder / "config.json").is_file():
            _check_mergeable(config, base, spec)
            try:
                with warnings.catch_warnings(), weights_here(base) as whole:
                    warnings.simplefilter("ignore")  # advice for training; what matters here is compared in numbers
                    _merge(whole, path, folder)
            except (InputError, EngineError):
                raise
            except Exception as error:  # whatever peft raises for an adapter that it can't read or that doesn't fit
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                raise InputError(f"model {spec}: its {kind} adapter can't be applied ({reason})") from error
    made = plain_source(spec, folder, f"sha256:{digest}", chat_template, trust_remote_code=base.code is not None)
    return replace(made, adapter=adapter, pickled=pickled or base.pickled)


# --- before loading -----------------------------------------------------------------------------------------------


def _read_config(path: Path, spec: str) -> dict[str, Any]:
    file = path / ADAPTER_CONFIG
    if not file.is_file():
        raise InputError(f"model {spec}: an adapter without its {ADAPTER_CONFIG}: copy it there, or remove the adapter")
    try:
        config: dict[str, Any] = json.loads(file.read_text("utf8"))
    except ValueError as error:
        raise InputError(f"model {spec}: its {ADAPTER_CONFIG} can't be read ({first_line(error)})") from error
    return config


def _weights(path: Path, spec: str) -> Path:
    for name in ADAPTER_WEIGHTS:
        if (path / name).is_file():
            return path / name
    raise InputError(f"model {spec}: {ADAPTER_CONFIG} without {ADAPTER_WEIGHTS[0]}: copy it there, or remove {ADAPTER_CONFIG}")


def _has_weights(path: Path) -> bool:
    """Whether a folder holds a model's weights besides an adapter's."""
    names = [file.name for pattern in ("model*.safetensors*", "pytorch_model*.bin*", "*.gguf") for file in path.glob(pattern)]
    return bool(names)


@contextlib.contextmanager
def _without_adapter(path: Path) -> Iterator[Path]:
    """A folder with links to all files but the adapter's: transformers would load the adapter, or its base, by itself."""
    with tempfile.TemporaryDirectory(prefix="evaluator-") as folder:
        for file in path.iterdir():
            if file.is_file() and file.name not in (ADAPTER_CONFIG, *ADAPTER_WEIGHTS):
                (Path(folder) / file.name).symlink_to(file.resolve())
        yield Path(folder)


def _named_base(config: dict[str, Any], path: Path, spec: str, resolve: Resolve) -> ModelSource:
    """The base model that an adapter names: a folder (relative to the current one or to the adapter's) or a hub id."""
    remedy = f"correct base_model_name_or_path in its {ADAPTER_CONFIG}"
    name = config.get("base_model_name_or_path")
    if not name or not isinstance(name, str):
        raise InputError(f"model {spec}: an adapter without the name of a base model: {remedy}")
    local = next((place for place in (Path(name).expanduser(), path / name) if place.exists()), None)
    revision = config.get("revision")
    where = str(local) if local else f"{name}@{revision}" if revision and "@" not in name else name
    if local and (local / ADAPTER_CONFIG).is_file() and not _has_weights(local):
        raise InputError(f"model {spec}: its base model {name} is an adapter without weights itself: {remedy}")
    try:
        return resolve(where)
    except InputError as error:
        reason = str(error).removeprefix(f"model {where}: ")
        raise InputError(f"model {spec}: an adapter whose base model {name} can't be used ({reason}): {remedy}") from error


def _check_mergeable(config: dict[str, Any], base: ModelSource, spec: str) -> None:
    """Raise InputError for adapters that are more than a change of weights, and for models that can't take one."""
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING

    kind = str(config.get("peft_type"))
    tuners = {str(name.value): tuner for name, tuner in PEFT_TYPE_TO_TUNER_MAPPING.items()}
    if kind not in tuners:
        raise InputError(f"model {spec}: peft {version('peft')} does not support {kind} adapters: install a newer version")
    reason = None
    if not hasattr(tuners[kind], "merge_and_unload") or kind in ("XLORA", "POLY"):
        reason = f"{kind} adapters can't be merged into weights (they add tokens or depend on the input)"
    elif config.get("alora_invocation_tokens"):
        reason = "it works only after its invocation tokens (activated LoRA)"
    elif getattr(base.config, "quantization_config", None):
        reason = f"its base model {base.spec} is quantized: name the unquantized one as its base"
    elif next_sentence(base.config) is not None:
        reason = f"its base model {base.spec} is a next-sentence classifier of this program"
    if reason:
        raise InputError(f"model {spec}: its adapter can't be applied: {reason}")


def _tokenizer_files(path: Path) -> list[Path]:
    """The files of a folder's tokenizer, chat template included; none where it has no whole tokenizer."""
    if not has_tokenizer(path):
        return []
    found = files_beside_weights(path)
    return [file for file in found if file.name not in _NOT_THE_TOKENIZERS and not file.name.endswith(".index.json")]


# --- merging ------------------------------------------------------------------------------------------------------


def _merge(base: ModelSource, adapter: Path, folder: Path) -> None:
    """Write the merged model into `folder`, which appears whole or not at all. Raises whatever peft raises.

    Merged and stored in float32 (float64 where the base is): bfloat16 would round the adapter's small changes away.
    """
    import torch
    from transformers import GenerationConfig

    quiet()
    scratch = folder.with_name(f".{folder.name}-{os.getpid()}")
    scratch.mkdir(parents=True)
    try:
        dtype = torch.float64 if getattr(base.config, "dtype", None) is torch.float64 else torch.float32
        model = _load(base, dtype)
        merged, expected = _apply(model, adapter, base.spec)
        merged.generation_config = GenerationConfig()  # of no use here, and saving checks its values
        merged.save_pretrained(scratch)
        for file in _tokenizer_files(adapter) or _tokenizer_files(base.path):
            shutil.copyfile(file, scratch / file.name)
        for name in base.code.files if base.code else ():
            (scratch / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(base.path / name, scratch / name)
        del model, merged
        found = _logits(_load(plain_source(base.spec, scratch, trust_remote_code=base.code is not None), dtype))
        largest = float(expected.abs().max())
        if not float((found - expected).abs().max()) <= _TOLERANCE * max(1.0, largest):
            raise ValueError("merged into the weights, it gives other numbers than applied separately")
        if not folder.exists():  # another process may have been faster
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _load(source: ModelSource, dtype: Any) -> Any:
    """The model with all the heads that its checkpoint has (a BERT may have two)."""
    import torch
    from transformers import AutoModelForPreTraining

    from evaluator_serving.models.loading import load, pretrained

    if len(source.heads) > 1:
        return pretrained(source, AutoModelForPreTraining, "pre-training", dtype).eval()
    (head,) = source.heads
    return load(source, head, dtype, torch.device("cpu"))  # type: ignore[arg-type]


def _apply(model: Any, adapter: Path, base: str) -> tuple[Any, Any]:
    """The model with the adapter merged in, and what it says of some made-up ids unmerged.

    Raises ValueError where a tensor of the adapter has no place in the model, or is missing.
    """
    from peft import PeftModel
    from peft.utils import load_peft_weights

    tensors = load_peft_weights(str(adapter), device="cpu")
    _resize(model, tensors)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrapped = PeftModel.from_pretrained(model, str(adapter), torch_device="cpu")
        placed = wrapped.load_adapter(str(adapter), "default", torch_device="cpu")
    if ignored := next((str(w.message) for w in told if "are ignored" in str(w.message)), None):
        raise ValueError(f"peft {version('peft')} doesn't know all of its settings: {ignored.partition(' for class')[0]}")
    # Where embeddings were resized, peft saves those that it wraps twice more, under names that it doesn't read.
    wrapping = re.compile(r"\.(modules_to_save|original_module)\.")
    strangers = [key for key in placed.unexpected_keys if wrapping.sub(".", key) not in tensors.keys() - {key}]
    if strangers := [*strangers, *placed.missing_keys]:
        raise ValueError(f"{strangers[0]} is a tensor of another model's adapter than {base}'s, or is missing")
    expected = _logits(wrapped)
    if not expected.isfinite().all():
        raise ValueError("it adds tokens without their embeddings, or holds NaN")
    _untie(wrapped.get_base_model())
    return wrapped.merge_and_unload(safe_merge=True), expected


def _resize(model: Any, tensors: dict[str, Any]) -> None:
    """As many token embeddings as the adapter was trained with; new ones are NaN until it gives them a value."""
    import torch

    before, rows = model.get_input_embeddings().weight.shape[0], _embedding_rows(model, tensors)
    if rows is None or rows == before:
        return
    model.resize_token_embeddings(rows, mean_resizing=False)
    with torch.no_grad():
        for end in (model.get_input_embeddings(), model.get_output_embeddings()):
            if end is not None:
                end.weight[before:] = torch.nan


def _embedding_rows(model: Any, tensors: dict[str, Any]) -> int | None:
    """Rows of the token embeddings that an adapter carries (tokens were added in training); None if it carries none."""
    embeddings = model.get_input_embeddings()
    name = next(name for name, module in model.named_modules() if module is embeddings)
    for key, tensor in tensors.items():
        if f".{name}." in key and tensor.dim() == 2 and (key.endswith("weight") or "lora_embedding_A" in key):
            return int(tensor.shape[1] if "lora_embedding_A" in key else tensor.shape[0])
    return None


def _untie(model: Any) -> None:
    """Give head and embeddings weights of their own where the adapter changes one of them: it would change both."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    if not any(isinstance(end, BaseTunerLayer | AuxiliaryTrainingWrapper) for end in ends):
        return
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in seen:
                module._parameters[name] = torch.nn.Parameter(parameter.detach().clone(), requires_grad=False)
            seen.add(id(module._parameters[name]))
    model.config.tie_word_embeddings = False


def _logits(model: Any) -> Any:
    """All logits of a model for two made-up texts, which end in the vocabulary's last tokens, flat."""
    import torch

    size = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(size, (2, 12), generator=torch.Generator().manual_seed(0))
    ids[:, -4:] = torch.arange(size - 4, size)
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})}
    with torch.inference_mode():
        output = model(**inputs)
    found = [value for name, value in output.items() if name.endswith("logits")]
    return torch.cat([value.double().flatten() for value in found])
