"""From a model spec to files on disk: hub id, id@revision or local folder (safetensors or GGUF).

Nothing here loads weights: a source is known by its config, its tokenizer and the names of its tensors. torch and
transformers are imported where they are needed, so that importing this module stays cheap.
"""

import functools
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, content_hash
from evaluator_serving.errors import InputError, first_line
from evaluator_serving.hub import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG_FILES, Found, HubModel, fetched, find
from evaluator_serving.nsp import ARCHITECTURES, IS_NEXT, next_sentence
from evaluator_serving.weight_files import (
    count_parameters,
    header_size,
    parameters,
    safetensors_header,
    tensor_names,
    weights_in,
)

CHAT_TEMPLATES = ("none", "user")

UNLIMITED = 1_000_000
"""Context of a model without absolute positions whose config names no limit."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm", "*.tiktoken")
_HASHED = ("*.safetensors", "*.bin", "*.gguf", *CONFIG_FILES)

_OFFSET_POSITIONS = frozenset(
    {"camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"}
    | {"xlm-roberta-xl", "xmod"}
)
"""Model types that number positions from pad_token_id + 1, so that many of the position table's rows are never used."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A PEFT adapter that was merged into a model's weights (see `adapters`).

    Attributes:
        kind: PEFT's name of it, `LORA` for example.
        base: spec of the model that it was merged into.
        base_revision, revision: of that model, and of the adapter, as in ModelSource.
    """

    kind: str
    base: str
    base_revision: str
    revision: str


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A resolved model: everything known about it before its weights are loaded.

    Attributes:
        spec: the spec as the user gave it (hub id, id@revision, folder).
        path: folder with its files (of a hub model without its weights until `weights_here`); of a GGUF model or one with an
            adapter, the folder in the cache that it was made into.
        revision: hub commit, or `sha256:…` over the content of a local folder's weights, config and tokenizer; with an adapter,
            over the two revisions.
        heads: what the checkpoint can answer: `masked`, `causal`, `seq2seq`, `pair` (a BERT may have two).
        config: the transformers config.
        context: most tokens of one input, special tokens included.
        chat_template: `none` or `user` (the prompt becomes the beginning of the assistant's turn).
        parameters: numbers in its weights, 0 where it isn't known.
        origin: what `weights_here` gets the weights from, on this machine or another: the hub, or a folder or file that must
            be there; None where they just lie in `path`.
        adapter: what was merged into the weights, if anything.
    """

    spec: str
    path: Path
    revision: str
    heads: frozenset[str]
    config: Any
    context: int
    chat_template: str = "none"
    parameters: int = 0
    origin: HubModel | Path | None = None
    adapter: Adapter | None = None


def resolve(spec: str, *, chat_template: str = "none") -> ModelSource:
    """Find a model and check all that can be before its weights are there.

    `spec` is a local folder (safetensors, .bin or one GGUF file, with or without a PEFT adapter, or an adapter that names its
    base model), a GGUF file, a hub id or `id@revision`. Of a hub model only configuration, tokenizer and the headers of its
    weights are fetched; all of it where only the weights tell what it is (GGUF, adapters, and .bin files of models that may
    have several heads). Raises InputError for anything that can't be scored: nothing found, no or truncated weights, no
    tokenizer, no usable head.
    """
    if chat_template not in CHAT_TEMPLATES:
        raise InputError(f"unknown chat template {chat_template!r}: choose one of {', '.join(CHAT_TEMPLATES)}")
    found = _locate(spec)
    if isinstance(found, Path):
        # As written, not where symbolic links lead: on another machine they may lead elsewhere.
        return _made(spec, found, None, chat_template, Path(os.path.abspath(Path(spec).expanduser())))
    if found.model.files[0][0].endswith(".gguf") or _has_adapter(found.folder):
        with fetched(found.model, spec) as folder:
            return _made(spec, folder, found.model.commit, chat_template, found.model)
    return _on_hub(spec, found, chat_template)


def _has_adapter(path: Path) -> bool:
    return any((path / name).is_file() for name in (ADAPTER_CONFIG, *ADAPTER_WEIGHTS))


def _made(spec: str, path: Path, commit: str | None, chat_template: str, origin: HubModel | Path) -> ModelSource:
    if _has_adapter(path):
        from evaluator_serving.adapters import adapted

        return replace(adapted(spec, path, commit, chat_template), origin=origin)
    return replace(plain_source(spec, path, commit, chat_template), origin=origin)


def plain_source(spec: str, path: Path, commit: str | None = None, chat_template: str = "none") -> ModelSource:
    """The model in a folder without an adapter, or in a GGUF file; without a commit its revision is its content's hash."""
    weights = _weights(path, spec)
    revision = commit or content_hash(weights if weights[0].suffix == ".gguf" else _matching(path, _HASHED))
    if weights[0].suffix == ".gguf":
        path = gguf_folder(weights[0], spec)
        weights = _weights(path, spec)
    check_weights(weights, spec)
    _check_description(path, spec)
    config = _load_config(path, spec)
    heads = _heads(config, lambda: tensor_names(weights), spec)
    return ModelSource(spec, path, revision, heads, config, _context(config), chat_template, count_parameters(path))


def _on_hub(spec: str, found: Found, chat_template: str) -> ModelSource:
    """The model on the hub, its weights left there."""
    _check_description(found.folder, spec)
    config = _load_config(found.folder, spec)

    def names() -> frozenset[str]:
        if found.shapes is not None:
            return frozenset(found.shapes)
        with fetched(found.model, spec) as folder:
            return tensor_names(folder / name for name, _ in found.model.files)

    return ModelSource(
        spec,
        found.folder,
        found.model.commit,
        _heads(config, names, spec),
        config,
        _context(config),
        chat_template,
        parameters(found.shapes, found.model.size),
        found.model,
    )


def load_tokenizer(source: ModelSource) -> Any:
    """The model's fast tokenizer. Raises InputError where it can't be loaded or gives no character offsets."""
    from transformers import AutoTokenizer

    quiet()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise InputError(f"model {source.spec}: its tokenizer can't be loaded ({first_line(error)})") from error
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"model {source.spec}: its tokenizer gives no character offsets; it needs a fast tokenizer")
    return tokenizer


def quiet() -> None:
    """Keep transformers' progress bars and advice off stderr, where the program's own progress goes."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def vocabulary(config: Any) -> tuple[int | None, int | None]:
    """Token ids that have embeddings, in the encoder and in the decoder (equal but for a few); None for a model without any.

    The config is enough: weights of another size than it says aren't loaded. More embeddings than tokens are no fault.
    """
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None)
    return size, getattr(text, "decoder_vocab_size", None) or size


def gguf_folder(file: Path, spec: str) -> Path:
    """The folder in the cache that a GGUF file is converted into on first use: float32 safetensors and a tokenizer.

    Reading GGUF takes minutes for what safetensors does in a second, and every other part then knows one format only.
    The folder is named by the file's content. Raises InputError where the file can't be read.
    """
    from evaluator_serving.gguf import convert

    quiet()
    folder = cache_dir() / "models" / f"gguf-{content_hash([file]).removeprefix('sha256:')[:32]}"
    if not (folder / "config.json").is_file():
        try:
            convert(file, folder)
        except ImportError as error:
            raise InputError(f"model {spec}: reading GGUF needs the gguf extra ({first_line(error)})") from error
        except Exception as error:
            raise InputError(f"model {spec}: {file.name} can't be read as GGUF ({first_line(error)})") from error
    return folder


# --- where the files are ------------------------------------------------------------------------------------------


def _locate(spec: str) -> Path | Found:
    """Folder or GGUF file of a spec, or what the hub says of it."""
    local = Path(spec).expanduser()
    if spec and local.is_dir():  # the empty path is the current folder
        return local.resolve()
    if local.is_file():
        if local.suffix != ".gguf":
            raise InputError(f"model {spec}: a file must be a .gguf file; give the folder for other formats")
        return local.resolve()
    folder, _, revision = spec.partition("@")
    if revision and Path(folder).expanduser().exists():
        raise InputError(f"model {spec}: {folder} is on this machine, where there are no revisions: leave @{revision} out")
    looks_like_id = re.fullmatch(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?", spec) is not None
    if not looks_like_id or spec.startswith((".", "/", "~")):
        raise InputError(f"model {spec}: no such folder, and not a hub id either (id or id@revision)")
    return find(folder, revision or None, spec)


def _matching(path: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})


def files_beside_weights(path: Path) -> list[Path]:
    """A folder's configuration and tokenizer files."""
    return _matching(path, CONFIG_FILES)


def has_tokenizer(path: Path) -> bool:
    """Whether a folder holds a tokenizer."""
    return bool(_matching(path, _TOKENIZER_FILES))


def _weights(path: Path, spec: str) -> list[Path]:
    """The files that hold the weights. Raises InputError where some or all are missing."""
    if path.is_file():
        return [path]
    files = weights_in(path)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(f"model {spec}: weight file {missing[0]} is missing (the weights' index names it)")
    if len(files) > 1 and files[0].suffix == ".gguf":
        raise InputError(f"model {spec}: {len(files)} GGUF files in the folder; give the path of one of them")
    if not files:
        raise InputError(f"model {spec}: no weights in {path} (model.safetensors, pytorch_model.bin or one .gguf file)")
    return files


# --- checks -------------------------------------------------------------------------------------------------------


def check_weights(weights: Iterable[Path], spec: str) -> None:
    """Raise InputError for a weight file that is truncated or none at all."""
    for file in weights:
        if file.suffix == ".safetensors":
            end = max((tensor["data_offsets"][1] for tensor in safetensors_header(file).values()), default=0)
            expected = header_size(file) + end
            if file.stat().st_size < expected:
                size = f"{file.stat().st_size:,} of {expected:,} bytes"
                raise InputError(f"model {spec}: {file.name} is truncated ({size}); copy it again")
        elif file.suffix == ".bin" and not (zipfile.is_zipfile(file) or _starts_with_pickle(file)):
            raise InputError(f"model {spec}: {file.name} is truncated or not a PyTorch file; copy it again")


def _check_description(path: Path, spec: str) -> None:
    """Raise InputError for a folder without configuration or tokenizer."""
    if not (path / "config.json").is_file():
        raise InputError(f"model {spec}: no config.json in {path}")
    if not has_tokenizer(path):
        raise InputError(f"model {spec}: no tokenizer in {path} (tokenizer.json, vocab.txt or a SentencePiece model)")


def _starts_with_pickle(file: Path) -> bool:
    """Whether this may be a file of PyTorch before 1.6, which wasn't a zip archive yet."""
    with file.open("rb") as handle:
        return handle.read(1) == b"\x80"


def _load_config(path: Path, spec: str) -> Any:
    from transformers import AutoConfig

    quiet()
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise InputError(f"model {spec}: its configuration can't be read ({first_line(error)})") from error


def _context(config: Any) -> int:
    """Most tokens that one input may have."""
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length"):
        limit = getattr(text, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit - (text.pad_token_id or 0) - 1 if text.model_type in _OFFSET_POSITIONS else limit
    return UNLIMITED


# --- heads --------------------------------------------------------------------------------------------------------


def _heads(config: Any, names: Callable[[], frozenset[str]], spec: str) -> frozenset[str]:
    """What the checkpoint can answer, from its architectures, or its model type and tensors where it names none.

    The tensors' names are asked for only where they decide something: of .bin files they are in the weights alone.
    """
    names = functools.cache(names)
    architectures = getattr(config, "architectures", None) or []
    heads = {head for name in architectures for head in _heads_of(name, config)}
    if not architectures:
        heads = _heads_by_type(config, names)
    if _has_next_sentence_head(config, names):
        heads.add("pair")
    if not heads:
        named = ", ".join(architectures) or f"type {config.model_type}"
        raise InputError(f"model {spec}: {named} has no language-model or next-sentence head that can be scored")
    return frozenset(heads)


def _heads_of(architecture: str, config: Any) -> set[str]:
    from transformers.models.auto import modeling_auto as auto

    if architecture in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values() and config.is_encoder_decoder:
        return {"seq2seq"}
    if architecture in ARCHITECTURES:
        return {"pair"}
    if architecture == "T5WithLMHeadModel":  # T5's name in checkpoints from before transformers 3
        return {"seq2seq"}
    if architecture in auto.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES.values():
        return {"pair"}
    if architecture.endswith("ForSequenceClassification"):
        return {"pair"} if next_label(config) is not None else set()
    if architecture.endswith("ForPreTraining"):
        # ELECTRA's pre-training model is its discriminator, which has no vocabulary head.
        return {"masked"} if config.model_type != "electra" and _masked_type(config) else set()
    if architecture in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() and not _is_decoder(config):
        return {"masked"}
    if architecture in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        return {"causal"}
    return set()


def _heads_by_type(config: Any, names: Callable[[], frozenset[str]]) -> set[str]:
    """Heads of a checkpoint that names no architecture (old conversions); loading checks the weights."""
    from transformers.models.auto import modeling_auto as auto

    if config.is_encoder_decoder:
        return {"seq2seq"} if config.model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES else set()
    if _masked_type(config) and not _is_decoder(config):
        head = re.compile(r"predictions|lm_head|vocab_|^decoder|pred_layer")
        return {"masked"} if any(head.search(name) for name in names()) else set()
    return {"causal"} if config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else set()


def _masked_type(config: Any) -> bool:
    from transformers.models.auto import modeling_auto as auto

    return config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _is_decoder(config: Any) -> bool:
    return bool(getattr(config, "is_decoder", False))


def _has_next_sentence_head(config: Any, names: Callable[[], frozenset[str]]) -> bool:
    """Whether the tensors include a next-sentence head: the original BERTs have one that their config doesn't name."""
    from transformers.models.auto import modeling_auto as auto

    if config.model_type not in auto.MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES:
        return False
    return "cls.seq_relationship.weight" in names() and any(".pooler." in name for name in names())


def next_label(config: Any) -> int | None:
    """The label that means "is next": 0 for next-sentence heads, for classifiers by its name in the config, or None."""
    if next_sentence(config) is not None:
        return IS_NEXT
    if not any(name.endswith("ForSequenceClassification") for name in getattr(config, "architectures", None) or []):
        return 0
    for label, number in (config.label2id or {}).items():
        if re.sub(r"[^a-z]", "", str(label).lower()) in ("isnext", "next", "nextsentence"):
            return int(number)
    return None
