"""Weight files of a checkpoint, and their headers. Tensors are not read."""

import json
import math
import struct
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from evaluator_serving.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor name → shape."""


def choose_files(names: Collection[str], shards: Callable[[str], Iterable[str]]) -> list[str]:
    """The weight files among a folder's file names: safetensors before .bin before GGUF files.

    `shards` returns the names in an index file; some may not be among `names`.
    """
    for stem in ("model.safetensors", "pytorch_model.bin"):
        if stem in names:
            return [stem]
        if f"{stem}.index.json" in names:
            return sorted(set(shards(f"{stem}.index.json")))
    return sorted(name for name in names if name.endswith(".gguf"))


def shards_of(index: Path) -> list[str]:
    """The file names in an index file. Raises InputError if it cannot be read."""
    try:
        return [str(file) for file in json.loads(index.read_text("utf8"))["weight_map"].values()]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{index}: not an index of weight files; copy it again") from error


def weights_in(folder: Path) -> list[Path]:
    """The weight files of a folder, including missing ones named by its index."""
    names = {file.name for file in folder.iterdir() if file.is_file()} if folder.is_dir() else set()
    return [folder / name for name in choose_files(names, lambda index: shards_of(folder / index))]


def header_size(file: Path) -> int:
    """Bytes before a safetensors file's first tensor."""
    with file.open("rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
    return 8 + int(length)


def safetensors_header(file: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file: tensor name → dtype, shape, data_offsets."""
    try:
        with file.open("rb") as handle:
            header: dict[str, Any] = json.loads(handle.read(header_size(file))[8:])
        header.pop("__metadata__", None)
        return header
    except (ValueError, struct.error, OverflowError, MemoryError) as error:
        raise InputError(f"{file}: truncated or not a safetensors file; copy it again") from error


def tensor_names(weights: Iterable[Path]) -> frozenset[str]:
    """Names of the tensors in safetensors or .bin files, read without the tensors themselves."""
    names: set[str] = set()
    for file in weights:
        if file.suffix == ".safetensors":
            names |= set(safetensors_header(file))
        elif file.suffix == ".bin":
            import torch

            names |= set(torch.load(file, map_location="cpu", mmap=zipfile.is_zipfile(file), weights_only=True))
    return frozenset(names)


def count_parameters(path: Path) -> int:
    """Numbers in the weights of a folder, from the headers of its files only; 0 where there are none."""
    files = [file for file in weights_in(path) if file.is_file()]
    headers = [safetensors_header(file) for file in files if file.suffix == ".safetensors"]
    shapes = {name: tuple(tensor["shape"]) for header in headers for name, tensor in header.items()}
    return parameters(shapes if headers else None, sum(file.stat().st_size for file in files))


def parameters(shapes: Shapes | None, size: int) -> int:
    """Numbers in tensors of these shapes; where they aren't known (.bin), from the files' bytes."""
    # A .bin file's header doesn't say: float32 is the widest that it is likely to hold.
    return size // 4 if shapes is None else sum(math.prod(shape) for shape in shapes.values())
