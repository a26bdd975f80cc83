"""Installed packages against the ranges that this program was tested with, which its own metadata say."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement

from evaluator.doctor.finding import Finding

OWN = "stereotype-evaluator"
PURPOSES: Mapping[str, str] = {
    "onnx": "masked models, and generative ones on CPUs, faster",
    "onnx-gpu": "masked models on GPUs, faster",
    "gguf": "GGUF files",
    "lora": "LoRA adapters",
    "vllm": "generative models on GPUs, fast",
    "vllm-cpu": "vLLM on a CPU",
    "ray": "sweeps over several devices or machines",
    "translate": "commercial translators",
    "report": "HTML reports with figures",
    "cloud": "runs on object storage",
}
"""What the extras are for that a user may want; others aren't spoken of."""
SAME = {"vllm": "vllm-cpu", "vllm-cpu": "vllm", "onnx": "onnx-gpu", "onnx-gpu": "onnx"}
"""Of these one is enough."""


def findings(required: Sequence[str] | None = None) -> Iterator[Finding]:
    """Python, the packages that are needed, and one finding an extra. `required` stands in for this program's own metadata."""
    try:
        lines = requires(OWN) or [] if required is None else required
        python = metadata(OWN)["Requires-Python"] if required is None else ""
    except PackageNotFoundError:
        yield Finding("package", OWN, "broken", "isn't installed, only its files are here", "pip install -e . in its folder")
        return
    yield Finding("python", "", "ok", f"{sys.version.split()[0]} ({python or 'any'})")
    wanted = [Requirement(line) for line in lines]
    yield from (_needed(one) for one in wanted if _applies(one, ""))
    extras = {name: [one for one in wanted if not _applies(one, "") and _applies(one, name)] for name in PURPOSES}
    there = {name for name, parts in extras.items() if parts and all(_version(one.name) for one in parts)}
    for name, parts in extras.items():
        if parts and (name in there or SAME.get(name) not in there):
            yield _extra(name, parts)


def _needed(asked: Requirement) -> Finding:
    found = _version(asked.name)
    install = f'pip install "{asked.name}{asked.specifier}"'
    if found is None:
        return Finding("package", asked.name, "broken", "is missing", install)
    if not asked.specifier.contains(found, prereleases=True):
        return Finding("package", asked.name, "warning", f"{found} is outside the tested range {asked.specifier}", install)
    return Finding("package", asked.name, "ok", f"{found} ({asked.specifier})")


def _extra(name: str, parts: Sequence[Requirement]) -> Finding:
    """One for all packages of an extra."""
    found = {one.name: _version(one.name) for one in parts}
    missing = [one for one, number in found.items() if number is None]
    install = f'pip install "{OWN}[{name}]"'
    if missing:
        text = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        return Finding("extra", name, "note", text, f"{install} for {PURPOSES[name]}")
    text = ", ".join(f"{one} {number}" for one, number in found.items())
    strange = [one for one in parts if not one.specifier.contains(found[one.name] or "", prereleases=True)]
    if strange:
        ranges = ", ".join(f"{one.name}{one.specifier}" for one in strange)
        return Finding("extra", name, "warning", f"{text}: tested with {ranges}", install)
    return Finding("extra", name, "ok", text)


def _applies(asked: Requirement, extra: str) -> bool:
    return asked.marker is None or asked.marker.evaluate({"extra": extra})


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
