"""Runs Trankit in a separate environment and answers parse requests, one JSON line each.

This file is a program for another Python: it imports nothing of the evaluator. Requests come on standard input, answers go to a
copy of standard output made before Trankit, which prints its progress there, is imported; its prints go to standard error.

First line out: {"ready": "1.1.2"} or {"error": …}. Then, a line in, a line out:
{"language": "slovak", "texts": [...]} -> {"parses": [...]} or {"error": …, "row": 3}
A parse is a list of sentences, a sentence a list of words [id, text, upos, head, deprel, feats]; the words of a multiword token
stand in its place.
"""

import json
import os
import sys
from typing import Any

EMBEDDING = "xlm-roberta-base"


def words(tokens: "list[dict[str, Any]]") -> "list[list[Any]]":
    """Trankit's tokens as rows; a multiword token (its id is a pair) is replaced by its words, absent keys by defaults."""
    rows = []
    for token in tokens:
        for word in token.get("expanded", [token]):
            rows.append(
                [
                    word["id"],
                    word["text"],
                    word.get("upos", "X"),
                    word["head"],
                    word.get("deprel", "dep"),
                    word.get("feats", ""),
                ]
            )
    return rows


class TrankitPipeline:
    """One Trankit pipeline, which loads languages on first use."""

    def __init__(self, cache: str, gpu: bool) -> None:
        self._cache = cache
        self._gpu = gpu
        self._pipeline: Any = None
        self._languages: set[str] = set()

    def parse(self, text: str, language: str) -> "list[list[list[Any]]]":
        """The sentences of a text; a blank text (Trankit asserts that there is none) has no sentences."""
        if not text.strip():
            return []
        self._activate(language)
        return [words(sentence["tokens"]) for sentence in self._pipeline.posdep(text)["sentences"]]

    def _activate(self, language: str) -> None:
        if self._pipeline is None:
            import trankit

            self._pipeline = trankit.Pipeline(language, cache_dir=self._cache, gpu=self._gpu, embedding=EMBEDDING)
        elif language not in self._languages:
            self._pipeline.add(language)
        self._languages.add(language)
        if self._pipeline.active_lang != language:
            self._pipeline.set_active(language)


def answer(worker: TrankitPipeline, request: "dict[str, Any]") -> "dict[str, Any]":
    """The answer to one request; an exception is an answer that says which text it was."""
    parses: list[Any] = []
    try:
        for text in request["texts"]:
            parses.append(worker.parse(text, request["language"]))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "row": len(parses)}
    return {"parses": parses}


def main() -> None:
    """Serve until standard input ends. Arguments: the cache folder, and `gpu` or `cpu`."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: "dict[str, Any]") -> None:
        protocol.write(json.dumps(message, ensure_ascii=False) + "\n")
        protocol.flush()

    try:
        import trankit

        say({"ready": trankit.__version__})
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return
    worker = TrankitPipeline(sys.argv[1], gpu=sys.argv[2] == "gpu")
    for line in sys.stdin:
        say(answer(worker, json.loads(line)))


if __name__ == "__main__":
    main()
