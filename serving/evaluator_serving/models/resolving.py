"""From a model spec (hub id, id@revision or local folder, safetensors or GGUF) to a source, and to its weights on this machine.

A source is planned with anywhere; its weights are fetched or found where they are wanted.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from evaluator_serving.errors import InputError, NotNowError
from evaluator_serving.models.adapters import adapted, has_adapter
from evaluator_serving.models.checkpoint import check_weights, hub_source, locate, plain_source
from evaluator_serving.models.code import own_code
from evaluator_serving.models.config import load_config
from evaluator_serving.models.served import is_served, served_source
from evaluator_serving.models.source import CHAT_TEMPLATES, ModelSource
from evaluator_serving.weights.hub import HubModel, fetch_code, fetched

DIGEST = 19
"""Characters of a content's hash that a message shows."""


def resolve(
    spec: str, *, chat_template: str = "none", allow_pickle: bool = False, trust_remote_code: bool = False
) -> ModelSource:
    """Find a model and check all that can be before its weights are there.

    `spec` is a local folder (safetensors, .bin or one GGUF file, with or without a PEFT adapter, or an adapter that names its
    base model), a GGUF file, a hub id or `id@revision`, or `URL#NAME` of a model at a server. Of a hub model only
    configuration, tokenizer and the headers of its weights are fetched; all of it where only the weights tell what it is
    (GGUF, adapters, and .bin files of models that may have several heads). Raises InputError
    for anything that can't be scored: nothing found, no or truncated weights, no tokenizer, no usable head; and for pickled
    weights unless `allow_pickle`, for programs of the model's own repository unless `trust_remote_code`.
    """
    if chat_template not in CHAT_TEMPLATES:
        raise InputError(f"unknown chat template {chat_template!r}: choose one of {', '.join(CHAT_TEMPLATES)}")
    if is_served(spec):
        return served_source(spec)
    found = locate(spec)
    allowed = {"allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code}
    if isinstance(found, Path):
        # As written, not where symbolic links lead: on another machine they may lead elsewhere.
        return _source_of(spec, found, None, chat_template, Path(os.path.abspath(Path(spec).expanduser())), **allowed)
    if found.model.files[0][0].endswith(".gguf") or has_adapter(found.folder):
        with fetched(found.model, spec) as folder:
            return _source_of(spec, folder, found.model.commit, chat_template, found.model, **allowed)
    return hub_source(spec, found, chat_template, **allowed)


def _source_of(
    spec: str, path: Path, commit: str | None, chat_template: str, origin: HubModel | Path, **allowed: bool
) -> ModelSource:
    if has_adapter(path):

        def base(name: str) -> ModelSource:
            return resolve(name, chat_template="none", **allowed)

        made = adapted(spec, path, commit, chat_template, resolve=base, weights_here=weights_here, **allowed)
        return replace(made, origin=origin)
    return replace(plain_source(spec, path, commit, chat_template, **allowed), origin=origin)


@contextlib.contextmanager
def weights_here(source: ModelSource, machine: str = "") -> Iterator[ModelSource]:
    """The source with its weights on this machine, wherever it was resolved; they aren't evicted while the body runs.

    Of a hub model what is missing is fetched, once however many processes ask; what this program makes of weights (GGUF,
    adapters) is made here of the same commit or file. A local folder or file must be here with the content that it was
    resolved with.
    `machine` names this one in messages, where it is another than the one that resolved.

    Raises InputError where a folder is missing or other than it was, ModelError and EngineError as `hub.fetched` does.
    """
    origin = source.origin
    if origin is None:
        yield source
    elif isinstance(origin, Path):
        yield _same(source, origin, machine)
    else:
        with fetched(origin, source.spec) as folder:
            check_weights([folder / name for name, _ in origin.files], source.spec)
            if source.adapter is None and not origin.files[0][0].endswith(".gguf"):
                yield _with_code(source, folder, origin)
                return
            made = _again(origin.spec, source)
            if made.revision != source.revision:  # an adapter's commit says nothing of its base model's
                raise NotNowError(f"model {source.spec}: its base model has changed since this command began: start it again")
            yield replace(source, path=made.path, config=made.config if source.code else source.config)


def resolve_here(
    spec: str, *, chat_template: str = "none", allow_pickle: bool = False, trust_remote_code: bool = False
) -> ModelSource:
    """`resolve` for a command with one model: its weights are fetched at once."""
    made = resolve(spec, chat_template=chat_template, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    with weights_here(made) as source:
        return source


def ahead(origin: HubModel | Path | None, keep: Collection[str] = ()) -> int:
    """Fetch what is missing of a model that will be loaded here next, and read its files into the page cache.

    Models in `keep` (`HubModel.key`) aren't evicted for it: they will be wanted too. Returns bytes read. Raises EngineError
    where there is no room at the moment, and what else `hub.fetched` does.
    """
    if origin is None or isinstance(origin, Path):
        return _read(origin) if origin else 0
    with fetched(origin, origin.name, keep=keep, wait=False) as folder:
        return _read(folder)


def _read(folder: Path) -> int:
    total = 0
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.suffix in (".safetensors", ".bin") and file.is_file():
            with file.open("rb") as handle:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                while block := handle.read(1 << 24):
                    total += len(block)
    return total


def _again(spec: str, source: ModelSource) -> ModelSource:
    """What is found here of a source that was resolved before, allowed what it was allowed then."""
    return resolve(spec, allow_pickle=source.pickled, trust_remote_code=source.code is not None)


def _with_code(source: ModelSource, folder: Path, origin: HubModel) -> ModelSource:
    """A hub model's source with its files in `folder`; its own code, if any, is fetched and makes its config here."""
    if source.code is None:
        return replace(source, path=folder)
    code = own_code(folder, source.spec, allowed=True, fetch=lambda: fetch_code(origin, source.spec))
    if code != source.code:
        raise InputError(f"model {source.spec}: its code in {folder} has changed since this command began: remove it")
    return replace(source, path=folder, config=load_config(folder, source.spec, own_code=True))


def _same(source: ModelSource, origin: Path, machine: str) -> ModelSource:
    """The source as it lies here. Raises InputError where it isn't here, or is another model."""
    if not origin.exists():
        where = machine or "this machine"
        raise InputError(
            f"model {source.spec}: {where} has no {origin}: copy it there, put it on a file system that all machines share, "
            "or give a hub id"
        )
    try:
        here = _again(str(origin), source)
    except InputError as error:
        raise type(error)(f"{error} (on {machine})" if machine else str(error)) from error
    if here.revision == source.revision and here.code != source.code:
        where = f" on {machine}" if machine else ""
        raise InputError(
            f"model {source.spec}: the code in {origin}{where} differs from that at the start of this command: "
            "copy the folder again, or start the command again"
        )
    if here.revision != source.revision:
        if not machine:
            raise NotNowError(f"model {source.spec}: its files have changed since this command began: start it again")
        raise InputError(
            f"model {source.spec}: {origin} on {machine} has other content than where the sweep was planned "
            f"({here.revision[:DIGEST]}…, not {source.revision[:DIGEST]}…): copy it there again"
        )
    return replace(source, path=here.path, config=here.config if source.code else source.config)
