"""A local translation model on several devices: each Ray actor holds a copy and translates part of the batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluator.translate.base import ChatTranslator, Translator, make_translator
from evaluator.translate.parsing import ParsedTranslation


class _Worker:
    """A Ray actor with one copy of the translator."""

    def __init__(self, spec: str, options: tuple[Any, ...]) -> None:
        self._translator = make_translator(spec, *options)

    def answers(self, texts: Sequence[str], language: str) -> Sequence[Any]:
        copy = self._translator
        return copy.generate(texts, language) if isinstance(copy, ChatTranslator) else copy.translate(texts, language)


class ShardedTranslator:
    """A translator that distributes batches over `workers` Ray actors. Answers and cache keys are those of a single copy."""

    price = 0.0

    def __init__(self, spec: str, options: tuple[Any, ...], workers: int, *, gpus: float = 0.0) -> None:
        """Start the actors on the connected Ray cluster, with `gpus` GPUs each."""
        import ray
        from ray.util import ActorPool

        self._one: Translator = make_translator(spec, *options)
        share = {"num_gpus": gpus} if gpus else {"num_cpus": 1}
        actors = [ray.remote(_Worker).options(**share).remote(spec, options) for _ in range(workers)]
        self._pool: Any = ActorPool(actors)
        self._workers = workers

    @property
    def system(self) -> str:
        """The model's name."""
        return self._one.system

    @property
    def parameters(self) -> Mapping[str, str]:
        """See Translator.parameters."""
        return self._one.parameters

    @property
    def batch(self) -> int:
        """One batch for each actor."""
        return self._one.batch * self._workers

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """See Translator.translate."""
        return list(self._answers(texts, language))

    def _answers(self, texts: Sequence[str], language: str) -> list[Any]:
        size = self._one.batch
        parts = [list(texts[i : i + size]) for i in range(0, len(texts), size)]
        answers = self._pool.map(lambda actor, part: actor.answers.remote(part, language), parts)
        return [answer for part in answers for answer in part]


class ShardedChatTranslator(ShardedTranslator, ChatTranslator):
    """A sharded ChatTranslator."""

    translate = ChatTranslator.translate

    def generate(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """See ChatTranslator.generate."""
        return self._answers(texts, language)

    def parse(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> list[ParsedTranslation]:
        """See ChatTranslator.parse."""
        assert isinstance(self._one, ChatTranslator)
        return self._one.parse(sources, language, answers)
