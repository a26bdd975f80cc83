"""The metadata of an archive, RO-Crate 1.2: a pure function from what it holds to `ro-crate-metadata.json`."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from evaluator.datasets.registry import Dataset

Entity = dict[str, Any]

METADATA = "ro-crate-metadata.json"
VERSION = "1.2"
LICENCES = "https://spdx.org/licenses/"
_FORMATS = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".parquet": "application/vnd.apache.parquet",
    ".bib": "application/x-bibtex",
}

_FOLDERS = {
    "logprobs": "Answers of a model, keyed by their request",
    "samples": "Samples of a task and their requests",
    "imported": "Scores that were computed elsewhere",
    "failures": "Requests that failed, and why",
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive says of itself.

    Attributes:
        name, description: of the whole.
        date: when it was made, ISO 8601.
        licence: SPDX identifier for the archive's own files; None where its maker gave none.
        version: the program's.
        record: run.json.
        datasets: those that the run's tasks read.
        notes: path → what the file is.
        texts: path → data set of a file with its sentences.
    """

    name: str
    description: str
    date: str
    licence: str | None
    version: str
    record: Mapping[str, Any]
    datasets: Sequence[Dataset]
    notes: Mapping[str, str]
    texts: Mapping[str, str]


def metadata(contents: Contents, files: Mapping[str, bytes]) -> Entity:
    """The document for these files (path → content)."""
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "conformsTo": {"@id": f"https://w3id.org/ro/crate/{VERSION}"},
            "about": {"@id": "./"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": contents.name,
            "description": contents.description,
            "datePublished": contents.date,
            "license": {"@id": f"{LICENCES}{contents.licence}" if contents.licence else "#no-licence"},
            "hasPart": [*({"@id": path} for path in files), *({"@id": _place(known)} for known in contents.datasets)],
            "mentions": {"@id": "#scoring"},
        },
        *(_file(contents, path, content) for path, content in files.items()),
        *_provenance(contents),
        *(_dataset(known) for known in contents.datasets),
        *_licences(contents),
    ]
    return {"@context": f"https://w3id.org/ro/crate/{VERSION}/context", "@graph": graph}


def digests(document: Mapping[str, Any]) -> dict[str, str]:
    """Path → sha256 of the files that a crate's metadata names."""
    return {
        entity["@id"]: entity["sha256"] for entity in document["@graph"] if entity.get("@type") == "File" and "sha256" in entity
    }


def _file(contents: Contents, path: str, content: bytes) -> Entity:
    folder = path.split("/")[1] if path.startswith("run/") else ""
    licence = {"license": {"@id": _licence_of(contents, contents.texts[path])}} if path in contents.texts else {}
    return {
        "@id": path,
        "@type": "File",
        "name": path,
        "description": contents.notes.get(path) or _FOLDERS[folder],
        "encodingFormat": _FORMATS[PurePosixPath(path).suffix],
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
        **licence,
    }


def _provenance(contents: Contents) -> Iterator[Entity]:
    """The program, the models and the scoring."""
    attempts = contents.record["attempts"]
    times = [each["time"] for each in attempts if "time" in each]
    yield {
        "@id": "#program",
        "@type": "CreativeWork",
        "name": "stereotype-evaluator",
        "version": contents.version,
        "license": {"@id": f"{LICENCES}Apache-2.0"},
    }
    models = [(f"#model-{number}", name, entry) for number, (name, entry) in enumerate(contents.record["models"].items())]
    for place, name, entry in models:
        revision = entry.get("revision")
        facts = [f"{key} {entry[key]}" for key in ("spec", "engine", "dtype", "fingerprint") if entry.get(key)]
        yield {
            "@id": place,
            "@type": "CreativeWork",
            "name": name,
            **({"version": revision} if isinstance(revision, str) else {}),
            "description": ", ".join(facts) or "imported scores",
        }
    yield {
        "@id": "#scoring",
        "@type": "CreateAction",
        "name": "Scoring of the models",
        "description": "\n".join(" ".join(each["command"]) for each in attempts if each.get("command")) or "imported scores",
        "instrument": {"@id": "#program"},
        "object": [{"@id": place} for place, *_ in models] + [{"@id": _place(known)} for known in contents.datasets],
        "result": {"@id": "rates.csv"},
        **({"startTime": times[0], "endTime": times[-1]} if times else {}),
    }


def _dataset(known: Dataset) -> Entity:
    """A data set, which is elsewhere."""
    return {
        "@id": _place(known),
        "@type": "Dataset",
        "name": known.name,
        "description": known.about,
        "license": {"@id": f"{LICENCES}{known.licence}"},
    }


def _place(known: Dataset) -> str:
    """Its repository; where it is shipped, a place in the crate's graph alone."""
    repository = next((source.repository for file in known.files for source in file.sources), None)
    return f"https://github.com/{repository}#{known.name}" if repository else f"#data-{known.name}"


def _licence_of(contents: Contents, name: str) -> str:
    return LICENCES + next(known.licence for known in contents.datasets if known.name == name)


def _licences(contents: Contents) -> Iterator[Entity]:
    names = {"Apache-2.0", *(known.licence for known in contents.datasets), *([contents.licence] if contents.licence else [])}
    for name in sorted(names):
        yield {"@id": f"{LICENCES}{name}", "@type": "CreativeWork", "name": name, "description": f"The licence {name}."}
    if contents.licence is None:
        text = "The creator of this archive gave no licence. Sentences of data sets are under their data set's licence."
        yield {"@id": "#no-licence", "@type": "CreativeWork", "name": "No licence given", "description": text}
