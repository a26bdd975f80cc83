"""Models on the hub: found by configuration, tokenizer and the headers of their weights; the weights come when wanted.

Everything is `huggingface_hub`'s: its cache folder, its locks (files that several processes want are fetched once), its
settings. This module says what to ask for, and what went wrong in a line.
"""

import contextlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evaluator_serving.cache import cache_dir, remember_json, remembered_json
from evaluator_serving.errors import EngineError, InputError, ModelError, UnreachedHubError, first_line
from evaluator_serving.weights.cache import in_use, key_of, readable, remove_torn
from evaluator_serving.weights.files import Shapes, choose_files, safetensors_header, shards_of, weights_in

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
CONFIG_FILES = ("*.json", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.jinja")
"""Configuration, tokenizer and the weights' index: small, and all that planning needs."""
CODE_PLACES = ("", "custom_generate/")
"""Folders of a model's repository whose Python files transformers may run where it trusts them: beside its configuration, and
what replaces its way to generate."""
HEADERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model at one commit, and the files with its weights: (name, bytes)."""

    name: str
    commit: str
    files: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(size for _, size in self.files)

    @property
    def key(self) -> str:
        """What the ledger of the cache calls it."""
        return key_of(self.name, self.commit)

    @property
    def spec(self) -> str:
        """The spec that means this commit and no other."""
        return f"{self.name}@{self.commit}"


@dataclass(frozen=True, slots=True)
class HubFiles:
    """A model on the hub with the folder of its configuration and tokenizer, and its tensors (None: not safetensors)."""

    model: HubModel
    folder: Path
    shapes: Shapes | None


def find(name: str, revision: str | None, spec: str) -> HubFiles:
    """Find a hub model without fetching its weights; the network isn't asked for what the cache holds of a known commit.

    Raises InputError for an id or revision that isn't there, ModelError where its terms aren't accepted or nothing answers
    (UnreachedHubError where that may pass).
    """
    from huggingface_hub import snapshot_download

    quiet_hub()
    with _hub_errors(spec, revision):
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(CONFIG_FILES), ignore_patterns=["*/*"]))
        commit = folder.name
        local = weights_in(folder)
        if local and all(file.is_file() for file in local) and not (folder / ADAPTER_CONFIG).is_file():
            files = tuple((file.name, file.stat().st_size) for file in local)
            headers = [safetensors_header(file) for file in local if file.suffix == ".safetensors"]
            tensors = {name: tuple(tensor["shape"]) for header in headers for name, tensor in header.items()}
            return HubFiles(HubModel(name, commit, files), folder, tensors if headers else None)
        return _listed(name, commit, folder, spec)


def missing_bytes(model: HubModel) -> int:
    """Bytes of a model's weights that aren't in this machine's cache."""
    return sum(_missing(model, _snapshot(model)).values())


@contextlib.contextmanager
def fetched(model: HubModel, spec: str, *, keep: Collection[str] = (), wait: bool = True) -> Iterator[Path]:
    """The folder with all of a model's files, fetched where it lacks some, and not evicted while the body runs.

    `keep` and `wait`: see `weights_cache.in_use`. Raises ModelError where the model
    will never fit or its terms aren't accepted, EngineError where fetching failed: trying again goes on with what is there.
    """
    from huggingface_hub import constants, snapshot_download

    quiet_hub()
    cache, folder = Path(constants.HF_HUB_CACHE), _snapshot(model)
    with in_use(cache, model.key, _missing(model, folder), spec, keep=keep, wait=wait):
        if _missing(model, folder):
            patterns = [*CONFIG_FILES, *(name for name, _ in model.files)]
            remove_torn(cache, folder.parents[1])
            with _told_fetching(model, spec, cache):
                snapshot_download(model.name, revision=model.commit, allow_patterns=patterns, ignore_patterns=["*/*"])
                if missing := _missing(model, folder):
                    raise FileNotFoundError(f"{next(iter(missing))} is incomplete")
        yield folder


def fetch_code(model: HubModel, spec: str) -> None:
    """Fetch the programs of a model's repository that may be run. Raises as `find` does."""
    from huggingface_hub import snapshot_download

    quiet_hub()
    with _hub_errors(spec, model.commit):
        for place in CODE_PLACES:  # in its patterns a star is any number of folders, too
            deeper = [f"{place}*/*"]
            snapshot_download(model.name, revision=model.commit, allow_patterns=[f"{place}*.py"], ignore_patterns=deeper)


def quiet_hub() -> None:
    """Keep the hub library's progress bars and advice off stderr, where the program's own progress goes."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    logging.set_verbosity_error()
    disable_progress_bars()


# --- what the hub says of a commit --------------------------------------------------------------------------------


def _listed(name: str, commit: str, folder: Path, spec: str) -> HubFiles:
    """Weight files and tensors as the hub lists them, remembered: a commit doesn't change."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    store = cache_dir() / "hub" / f"{name.replace('/', '--')}@{commit}.json"
    if known := remembered_json(store):
        shapes = known["shapes"] and {tensor: tuple(shape) for tensor, shape in known["shapes"].items()}
        return HubFiles(HubModel(name, commit, tuple((file, size) for file, size in known["files"])), folder, shapes)
    api = HfApi()
    sizes = {entry.path: entry.size for entry in api.list_repo_tree(name, revision=commit) if isinstance(entry, RepoFile)}
    files = choose_files(sizes, lambda index: shards_of(folder / index))
    adapter = [file for file in ADAPTER_WEIGHTS if file in sizes]
    for file in files:
        if file not in sizes:
            raise InputError(f"model {spec}: weight file {file} is missing on the hub (the index names it)")
    if not files and not adapter:
        raise InputError(f"model {spec}: no weights on the hub (model.safetensors, pytorch_model.bin or one .gguf file)")
    if len(files) > 1 and files[0].endswith(".gguf"):
        raise InputError(f"model {spec}: {len(files)} GGUF files on the hub; download one of them and give its path")
    shapes = _shapes(name, commit, files) if files and files[0].endswith(".safetensors") else None
    files += adapter  # which `models` then fetches and merges: alone it is no model
    found = HubFiles(HubModel(name, commit, tuple((file, sizes[file]) for file in files)), folder, shapes)
    remember_json(store, {"files": found.model.files, "shapes": shapes})
    return found


def _shapes(name: str, commit: str, files: list[str]) -> Shapes:
    """The tensors of safetensors files, by range requests for their headers."""
    from huggingface_hub import HfApi

    api = HfApi()
    with ThreadPoolExecutor(HEADERS_AT_ONCE) as pool:
        headers = list(pool.map(lambda file: api.parse_safetensors_file_metadata(name, file, revision=commit), files))
    return {tensor: tuple(info.shape) for header in headers for tensor, info in header.tensors.items()}


def _snapshot(model: HubModel) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repo = repo_folder_name(repo_id=model.name, repo_type="model")
    return Path(constants.HF_HUB_CACHE).expanduser().resolve() / repo / "snapshots" / model.commit


def _missing(model: HubModel, folder: Path) -> dict[str, int]:
    """Those of a model's weight files that the folder lacks, with their bytes."""
    return {name: size for name, size in model.files if not (folder / name).is_file() or (folder / name).stat().st_size != size}


# --- what goes wrong ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _hub_errors(spec: str, revision: str | None) -> Iterator[None]:
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except (InputError, EngineError):
        raise
    except GatedRepoError as error:
        raise _gated(spec) from error
    except RevisionNotFoundError as error:
        raise InputError(f"model {spec}: no revision {revision!r} on the hub") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise InputError(f"model {spec}: no such folder, and no such model on the Hub (or it is private)") from error
    except Exception as error:  # whatever the HTTP client or the cache raises
        kind = UnreachedHubError if _may_pass(error) else ModelError
        raise kind(
            f"model {spec}: not a local folder, and the Hub can't be reached ({first_line(error)}); give a folder or go online"
        ) from error


def _may_pass(error: Exception) -> bool:
    """Whether the same question may be answered later: not where the hub has refused it, or isn't to be asked at all."""
    from huggingface_hub import constants

    statuses = [getattr(getattr(one, "response", None), "status_code", None) for one in _chain(error)]
    refused = any(status is not None and 400 <= status < 500 and status not in (408, 425, 429) for status in statuses)
    return not refused and not constants.HF_HUB_OFFLINE


@contextlib.contextmanager
def _told_fetching(model: HubModel, spec: str, cache: Path) -> Iterator[None]:
    from huggingface_hub.errors import GatedRepoError

    try:
        yield
    except GatedRepoError as error:
        raise _gated(spec) from error
    except Exception as error:
        if "No space left" in _whole(error) or "Errno 28" in _whole(error):
            raise EngineError(
                f"model {spec}: the disk of {cache} is full: of its weights' {readable(model.size)} "
                f"{readable(missing_bytes(model))} are missing; free some, lower --weights-cache, or set another HF_HOME"
            ) from error
        reason = first_line(error)
        raise EngineError(
            f"model {spec}: its weights can't be fetched ({reason}); run the same command again: complete files are kept"
        ) from error


def _gated(spec: str) -> ModelError:
    return ModelError(f"model {spec}: accept its terms on the hub first, then run `hf auth login`")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _whole(error: BaseException) -> str:
    """The messages of an error and of those behind it."""
    return "\n".join(map(str, _chain(error)))
