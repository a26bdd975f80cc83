"""Installed packages against the version ranges in this package's metadata, which were tested."""

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
"""Extra → its purpose. Extras for development are not checked."""
SAME = {"vllm": "vllm-cpu", "vllm-cpu": "vllm", "onnx": "onnx-gpu", "onnx-gpu": "onnx"}
"""Extra → an alternative that makes it unnecessary."""


def findings(required: Sequence[str] | None = None) -> Iterator[Finding]:
    """Python, the required packages, and one finding per extra. `required` replaces this package's own metadata (for tests)."""
    try:
        lines = requires(OWN) or [] if required is None else required
        python = metadata(OWN)["Requires-Python"] if required is None else ""
    except PackageNotFoundError:
        yield Finding("package", OWN, "broken", "is not installed, only its files are here", "pip install -e . in its folder")
        return
    yield Finding("python", "", "ok", f"{sys.version.split()[0]} ({python or 'any'})")
    requirements = [Requirement(line) for line in lines]
    yield from (_required(one) for one in requirements if _applies(one, ""))
    extras = {name: [one for one in requirements if not _applies(one, "") and _applies(one, name)] for name in PURPOSES}
    installed = {name for name, parts in extras.items() if parts and all(_version(one.name) for one in parts)}
    for name, parts in extras.items():
        if parts and (name in installed or SAME.get(name) not in installed):
            yield _extra(name, parts)


def _required(package: Requirement) -> Finding:
    name, tested = package.name, package.specifier
    installed, install = _version(name), f'pip install "{name}{tested}"'
    if installed is None:
        return Finding("package", name, "broken", "is missing", install)
    if not tested.contains(installed, prereleases=True):
        return Finding("package", name, "warning", f"{installed} is outside the tested range {tested}", install)
    return Finding("package", name, "ok", f"{installed} ({tested})")


def _extra(name: str, parts: Sequence[Requirement]) -> Finding:
    """One finding for all packages of an extra."""
    installed = {one.name: _version(one.name) for one in parts}
    missing = [one for one, number in installed.items() if number is None]
    install = f'pip install "{OWN}[{name}]"'
    if missing:
        text = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        return Finding("extra", name, "note", text, f"{install} for {PURPOSES[name]}")
    text = ", ".join(f"{one} {number}" for one, number in installed.items())
    untested = [one for one in parts if not one.specifier.contains(installed[one.name] or "", prereleases=True)]
    if untested:
        ranges = ", ".join(f"{one.name}{one.specifier}" for one in untested)
        return Finding("extra", name, "warning", f"{text}: tested with {ranges}", install)
    return Finding("extra", name, "ok", text)


def _applies(package: Requirement, extra: str) -> bool:
    return package.marker is None or package.marker.evaluate({"extra": extra})


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
