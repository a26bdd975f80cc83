"""A local translation model on several devices: each Ray actor holds a copy and translates part of the batches."""

from collections.abc import Sequence
from typing import Any

from evaluator.translate.base import Translator, answers_of, make_translator


class _Worker:
    """A Ray actor with one copy of the translator."""

    def __init__(self, spec: str, options: tuple[Any, ...]) -> None:
        self._translator = make_translator(spec, *options)

    def answers(self, texts: Sequence[str], language: str) -> Sequence[Any]:
        return answers_of(self._translator, texts, language)


class Copies:
    """Answers of `workers` copies of a translator, which share out its batches."""

    def __init__(self, translator: Translator, spec: str, options: tuple[Any, ...], workers: int, *, gpus: float = 0.0) -> None:
        """Start the actors on the connected Ray cluster, with `gpus` GPUs each. `spec` and `options` make the translator."""
        import ray
        from ray.util import ActorPool

        self._size = translator.batch
        share = {"num_gpus": gpus} if gpus else {"num_cpus": 1}
        self._pool: Any = ActorPool([ray.remote(_Worker).options(**share).remote(spec, options) for _ in range(workers)])

    def __call__(self, texts: Sequence[str], language: str) -> list[Any]:
        """What `answers_of` gives of one copy."""
        parts = [list(texts[i : i + self._size]) for i in range(0, len(texts), self._size)]
        answers = self._pool.map(lambda actor, part: actor.answers.remote(part, language), parts)
        return [answer for part in answers for answer in part]
