"""What an exported folder says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evaluator_serving.errors import InputError

FORMAT = 4
"""Version of the folder's layout and of the graphs' arithmetic: part of the cache's key."""

Kind = Literal["masked", "causal"]
"""Which requests the graphs answer."""

HIDDEN: dict[Kind, str] = {"masked": "masked_hidden_states", "causal": "read_hidden_states"}
"""What `hidden.onnx` gives and `head.onnx` takes."""

VOCABULARY = "vocabulary"
"""Name that the vocabulary matrix and its bias have in the graphs."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an exported folder holds.

    Attributes:
        model, revision: spec and content hash or commit of the checkpoint.
        head: `masked` or `causal`.
        family: transformers' model type.
        dtype: float32, float16 or int8 (the layers' matrices in 8 bits, the rest float32).
        width: H of the hidden states that the head multiplies.
        heads: attention heads of a layer.
        types: whether the graphs take token_type_ids.
        padding: id that pads input_ids.
        repacks: whether ONNX Runtime may keep repacked copies of weights (not where layers share theirs).
        vocabulary: place of the vocabulary matrix [V, H] and, where there is one, bias [V] in `weights.bin`: offset and shape.
        versions: of the libraries that made the folder, and the opset.
    """

    model: str
    revision: str
    head: Kind
    family: str
    dtype: str
    width: int
    heads: int
    types: bool
    padding: int
    repacks: bool
    vocabulary: dict[str, tuple[int, list[int]]]
    versions: dict[str, str]
    format: int = FORMAT

    def properties(self) -> dict[str, str]:
        """As the metadata of an ONNX file."""
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in asdict(self).items()}

    def save(self, folder: Path) -> None:
        """Write `manifest.json`."""
        (folder / "manifest.json").write_text(json.dumps(asdict(self), indent=1), "utf8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an exported folder. Raises InputError where there is none or its format isn't this version's."""
    try:
        content: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: no exported model here (manifest.json is missing or damaged)") from error
    if content.get("format") != FORMAT:
        raise InputError(f"{folder}: exported by another version (format {content.get('format')}); export it again")
    places = {part: (offset, shape) for part, (offset, shape) in content.pop("vocabulary").items()}
    return Manifest(**content, vocabulary=places)
