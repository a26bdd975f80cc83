"""A checkpoint's files: where they are, whether they are whole, and the source that they make. Nothing here loads weights.

A source is known by its config, its tokenizer and the names of its tensors. torch and transformers are imported where they
are needed, so that importing this module stays cheap.
"""

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evaluator_serving.cache import cache_dir, content_hash
from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.code import brings_head, own_code, refused
from evaluator_serving.models.config import context, load_config, quiet
from evaluator_serving.models.gguf import CONVERSION, convert, is_corrected
from evaluator_serving.models.gguf_config import UnusableGgufError
from evaluator_serving.models.heads import heads_of
from evaluator_serving.models.model_cache import known_model, remember
from evaluator_serving.models.source import ModelSource, OwnCode
from evaluator_serving.weights.files import (
    count_parameters,
    header_size,
    parameters,
    safetensors_header,
    tensor_names,
    weights_in,
)
from evaluator_serving.weights.hub import CONFIG_FILES, HubFiles, fetch_code, fetched, find

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm", "*.tiktoken")
_HASHED = ("*.safetensors", "*.bin", "*.gguf", *CONFIG_FILES)


def plain_source(
    spec: str,
    path: Path,
    commit: str | None = None,
    chat_template: str = "none",
    *,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> ModelSource:
    """The model in a folder without an adapter, or in a GGUF file; without a commit its revision is its content's hash.

    A GGUF model that transformers alone converts wrongly has a revision of its own: earlier versions asked that other model.
    """
    weights = _weights(path, spec)
    pickled = is_pickled([file.name for file in weights], spec, allowed=allow_pickle)
    revision = commit or content_hash(weights if weights[0].suffix == ".gguf" else _matching(path, _HASHED))
    if weights[0].suffix == ".gguf":
        path = gguf_folder(weights[0], spec)
        if is_corrected(path):
            revision = f"sha256:{hashlib.sha256(f'{revision} gguf {CONVERSION}'.encode()).hexdigest()}"
        weights = _weights(path, spec)
    check_weights(weights, spec)
    _check_description(path, spec)
    code = own_code(path, spec, allowed=trust_remote_code)
    config, heads = _described(path, revision, spec, lambda: tensor_names(weights), code)
    return ModelSource(
        spec,
        path,
        revision,
        heads,
        config,
        context(config),
        chat_template,
        count_parameters(path),
        pickled=pickled,
        code=code,
    )


def hub_source(
    spec: str, found: HubFiles, chat_template: str, *, allow_pickle: bool = False, trust_remote_code: bool = False
) -> ModelSource:
    """The model on the hub, its weights left there."""
    pickled = is_pickled([name for name, _ in found.model.files], spec, allowed=allow_pickle)
    _check_description(found.folder, spec)

    def names() -> frozenset[str]:
        if found.shapes is not None:
            return frozenset(found.shapes)
        with fetched(found.model, spec) as folder:
            return tensor_names(folder / name for name, _ in found.model.files)

    code = own_code(found.folder, spec, allowed=trust_remote_code, fetch=lambda: fetch_code(found.model, spec))
    config, heads = _described(found.folder, found.model.commit, spec, names, code)
    return ModelSource(
        spec,
        found.folder,
        found.model.commit,
        heads,
        config,
        context(config),
        chat_template,
        parameters(found.shapes, found.model.size),
        found.model,
        pickled=pickled,
        code=code,
    )


def _described(
    path: Path, revision: str, spec: str, names: Callable[[], frozenset[str]], code: OwnCode | None
) -> tuple[Any, frozenset[str]]:
    """A folder's configuration and what the checkpoint can answer (see `heads_of`), remembered or read."""
    if code:
        config = load_config(path, spec, own_code=True)
        return config, heads_of(config, names, spec, own_code=True)
    if known := known_model(revision, path):
        return known
    config = load_config(path, spec)
    try:
        heads = heads_of(config, names, spec)
    except InputError as error:
        raise refused(path, spec) if brings_head(path) else error from None
    return remember(revision, path, config, heads), heads


def gguf_folder(file: Path, spec: str) -> Path:
    """The folder in the cache that a GGUF file is converted into on first use: float32 safetensors and a tokenizer.

    Reading GGUF takes minutes for what safetensors does in a second, and every other part then knows one format only.
    The folder is named by the file's content. Raises InputError where the file can't be read, or would lose something.
    """
    folder = cache_dir() / "models" / f"gguf-{CONVERSION}-{content_hash([file]).removeprefix('sha256:')[:32]}"
    if not (folder / "config.json").is_file():
        quiet()
        try:
            convert(file, folder)
        except ImportError as error:
            raise InputError(f"model {spec}: reading GGUF needs the gguf extra ({first_line(error)})") from error
        except UnusableGgufError as error:
            raise InputError(f"model {spec}: {file.name}: {error}") from error
        except Exception as error:
            raise InputError(f"model {spec}: {file.name} can't be read as GGUF ({first_line(error)})") from error
    return folder


# --- where the files are ------------------------------------------------------------------------------------------


def locate(spec: str) -> Path | HubFiles:
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
        raise InputError(f"model {spec}: {folder} is on this machine, where there are no revisions: remove @{revision}")
    looks_like_id = re.fullmatch(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?", spec) is not None
    if not looks_like_id or spec.startswith((".", "/", "~")):
        raise InputError(f"model {spec}: no such folder, and not a Hub id (id or id@revision)")
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


def is_pickled(names: Iterable[str], spec: str, *, allowed: bool) -> bool:
    """Whether weights are pickles, which can hold a program besides. Raises InputError where that isn't `allowed`.

    They are read by PyTorch's restricted unpickler even then.
    """
    found = next((name for name in names if name.endswith(".bin")), None)
    if found and not allowed:
        raise InputError(
            f"model {spec}: its weights are pickled ({found}), which can execute code: use a revision or a copy with "
            "safetensors or, if you trust the source, allow pickled weights for this model (--allow-pickle; in SWEEP.toml "
            "allow_pickle = true; of a translator SPEC?pickle)"
        )
    return found is not None


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
