"""What is known of a model before its weights are loaded: plain data, which travels between machines."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from evaluator_serving.chats import Day
from evaluator_serving.weights.hub import HubModel

CHAT_TEMPLATES = ("none", "user")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A PEFT adapter that was merged into a model's weights (see `models.adapters`).

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
class Served:
    """Where a model is that can only be talked to: a server's base URL, and the model's name there."""

    url: str
    name: str


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Programs of a model's own repository, which the user has allowed (see `models.code`).

    Attributes:
        files: their names.
        revision: `sha256:…` over their content.
    """

    files: tuple[str, ...]
    revision: str


@dataclass(frozen=True, slots=True)
class FileTokens:
    """A tokenizer.json that is used although transformers' class for it makes another tokenizer (see `models.tokenizer`).

    Attributes:
        instead_of: the class.
        differ: whether the class makes other tokens of what is asked; None where it makes none that could be compared.
    """

    instead_of: str
    differ: bool | None


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A resolved model: everything known about it before its weights are loaded.

    Attributes:
        spec: the spec as the user gave it (hub id, id@revision, folder).
        path: folder with its files (of a hub model without its weights until `weights_here`); of a GGUF model or one with an
            adapter, the folder in the cache that it was made into.
        revision: hub commit, or `sha256:…` over the content of a local folder's weights, config and tokenizer; with an adapter,
            over the two revisions; of a GGUF file that transformers alone converts wrongly, over that of the file and the
            version of the conversion.
        heads: what the checkpoint can answer: `masked`, `causal`, `seq2seq`, `pair` (a BERT may have two); `chat` alone for a
            model that is served elsewhere.
        config: the transformers config, None where it is served elsewhere (and, if own code made it, in a source that came from
            another process, until `weights_here`).
        context: most tokens of one input, special tokens included.
        chat_template: `none` or `user` (the prompt becomes the beginning of the assistant's turn).
        parameters: numbers in its weights, 0 where it isn't known.
        origin: what `weights_here` gets the weights from, on this machine or another: the hub, or a folder or file that must
            be there; None where they just lie in `path`.
        adapter: what was merged into the weights, if anything.
        pickled: whether weights are pickles, which the user has allowed.
        code: what of its own repository is run for it, if anything; whoever loads it must tell the library to.
        served: the server that alone knows the model.
        system: the system prompt under which it is asked, None for none but the chat template's own.
        thinking: `on`, `off` or a level of effort that is asked for; empty for what the chat template or server does by itself.
        day: the date that its chat template writes where it writes one; None for today's.
        module: the loaded transformers model itself, where it is in memory already (see `models.live`).
        tokenizer: that its tokenizer.json is used in place of a class, where that was looked at (see `models.file_tokens`).
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
    pickled: bool = False
    served: Served | None = None
    system: str | None = None
    code: OwnCode | None = None
    thinking: str = ""
    day: Day | None = None
    tokenizer: FileTokens | None = None
    module: Any = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without a config of own code's making: its class is known to this process alone."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return ModelSource, tuple((values | ({"config": None} if self.code else {})).values())
