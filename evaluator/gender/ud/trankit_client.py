"""Trankit as a parser, in a worker process: it cannot be installed in one environment with transformers 5.

`deploy/trankit-env.sh DIR` makes its environment; `DIR/bin/python` is the `python` below. The weights (about 50 MB a
language and 1.1 GB for XLM-R) are downloaded by Trankit itself, once:
    DIR/bin/python -c "import trankit; trankit.Pipeline('slovak', cache_dir='CACHE', gpu=False)"
A sentence costs 2 to 5 CPU-seconds: wrap the parser in `CachedParser`, and use a GPU for whole data sets.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from evaluator.gender.text import serbian_to_latin
from evaluator.gender.ud.parser import Parse, UdToken
from evaluator_serving.errors import EngineError, InputError

EMBEDDING = "xlm-roberta-base"

NAMES: dict[str, str] = {
    "be": "belarusian",
    "ru": "russian",
    "uk": "ukrainian",
    "hr": "croatian",
    "sl": "slovenian",
    "sr": "serbian",
    "cs": "czech",
    "pl": "polish",
    "sk": "slovak",
}
"""Language code to Trankit's name."""

_FILES = ("{}.downloaded", "{}.vocabs.json", "{}.tokenizer.mdl", "{}.tagger.mdl", "{}_lemmatizer.pt")
_MORE_FILES = {
    **dict.fromkeys(("cs", "pl", "uk"), ("{}_mwt_expander.pt",)),
    "ru": ("{}.ner.mdl", "{}.ner-vocab.json"),
}


class TrankitParser:
    """`Parser` over one Trankit worker process, started at the first text and ended with `close` (or with this object).

    python: the interpreter of Trankit's environment; cache: the folder with its weights; gpu: use one where there is one.
    """

    def __init__(self, python: str, cache: Path, gpu: bool = True) -> None:
        self._python = python
        self._cache = cache
        self._device = "gpu" if gpu else "cpu"
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None
        self._fingerprints: dict[str, str] = {}

    def fingerprint(self, language: str) -> str:
        """Identifies the weights by content. Raises InputError if any are missing."""
        if language not in self._fingerprints:
            digest = hashlib.sha256()
            for path in self._weights(language):
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            self._fingerprints[language] = f"trankit-{EMBEDDING}-{NAMES[language]}-{digest.hexdigest()[:16]}"
        return self._fingerprints[language]

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        """Parse the texts, Serbian in the Latin script, which its model was trained on.

        Raises InputError where the weights or the environment are missing, EngineError (with the row) where Trankit fails.
        """
        self._weights(language)
        if language == "sr":
            texts = [serbian_to_latin(text) for text in texts]
        reply = self._ask({"language": NAMES[language], "texts": list(texts)})
        if "error" in reply:
            raise EngineError(f"Trankit failed on {texts[reply['row']]!r}: {reply['error']}", row=reply["row"])
        return [tuple(tuple(UdToken(*word) for word in sentence) for sentence in parse) for parse in reply["parses"]]

    def close(self) -> None:
        """End the worker."""
        if self._process:
            self._finalizer()
            self._process = None

    def _weights(self, language: str) -> list[Path]:
        """The files of a language's model. Raises InputError naming the first that is missing and how to get it."""
        if language not in NAMES:
            raise InputError(f"Trankit is set up for {' '.join(NAMES)}, not for {language!r}")
        name = NAMES[language]
        get_it = (
            f"run {self._python} -c \"import trankit; trankit.Pipeline('{name}', cache_dir='{self._cache}', gpu=False)\" "
            "on a machine with network access"
        )
        folder = self._cache / EMBEDDING / name
        files = [folder / file.format(name) for file in (*_FILES, *_MORE_FILES.get(language, ()))]
        for path in (*files, self._cache / EMBEDDING / f"models--{EMBEDDING}"):
            if not path.exists():
                raise InputError(f"no Trankit weights for {name}: {path} is missing; {get_it}")
        return files

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a dead worker is reported where its answer is read
            process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
            process.stdin.flush()
        return self._read(process)

    def _start(self) -> "subprocess.Popen[str]":
        if self._process:
            return self._process
        program = Path(__file__).with_name("trankit_worker.py")
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        environment["HF_HUB_OFFLINE"] = "1"  # the weights have just been found; nothing else is to be fetched
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        try:
            # -P: the worker's folder must not hide modules of the same name
            process = subprocess.Popen(
                [self._python, "-P", "-X", "utf8", str(program), str(self._cache), self._device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                encoding="utf-8",
                env=environment,
            )
        except OSError as error:
            raise InputError(
                f"cannot run {self._python} ({error}): make Trankit's environment with deploy/trankit-env.sh"
            ) from error
        self._process = process
        self._finalizer = weakref.finalize(self, _end, process)
        hello = self._read(process)
        if "error" in hello:
            self.close()
            raise InputError(
                f"{self._python} has no working Trankit ({hello['error']}): make its environment with deploy/trankit-env.sh"
            )
        return process

    def _read(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self._process = None
            raise EngineError(f"the Trankit worker ended with exit code {code}; last output: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        lines = self._log.read().decode(errors="replace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-500:] or "(none)"


def _end(process: "subprocess.Popen[str]") -> None:
    """Close the worker's input, which ends it; kill it if it does not end."""
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
