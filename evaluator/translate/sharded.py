"""A local translation model on several devices at once: Ray actors that each hold a copy share the batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluator.translate.base import Talker, TranslationOutcome, Translator, make_translator


class _Worker:
    """One copy of a translator (a Ray actor)."""

    def __init__(self, spec: str, options: tuple[Any, ...]) -> None:
        self._translator = make_translator(spec, *options)

    def answers(self, texts: Sequence[str], language: str) -> Sequence[Any]:
        one = self._translator
        return one.ask(texts, language) if isinstance(one, Talker) else one.translate(texts, language)


class ShardedTranslator:
    """A translator whose batches are spread over `workers` Ray actors; its answers and its cache keys are the single one's."""

    price = 0.0

    def __init__(self, spec: str, options: tuple[Any, ...], workers: int, *, gpus: float = 0.0) -> None:
        """Start the actors on the Ray that this process is connected to; `gpus` is what each of them takes."""
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
        """Those of one copy."""
        return self._one.parameters

    @property
    def batch(self) -> int:
        """A batch for every actor."""
        return self._one.batch * self._workers

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """See Translator.translate."""
        return list(self._answers(texts, language))

    def _answers(self, texts: Sequence[str], language: str) -> list[Any]:
        size = self._one.batch
        parts = [list(texts[i : i + size]) for i in range(0, len(texts), size)]
        answers = self._pool.map(lambda actor, part: actor.answers.remote(part, language), parts)
        return [answer for part in answers for answer in part]


class ShardedTalker(ShardedTranslator):
    """The same of a translator whose answers have to be read."""

    def ask(self, texts: Sequence[str], language: str) -> list[dict[str, str]]:
        """See Talker.ask."""
        return self._answers(texts, language)

    def read(self, sources: Sequence[str], language: str, answers: Sequence[Mapping[str, str]]) -> Sequence[TranslationOutcome]:
        """See Talker.read."""
        assert isinstance(self._one, Talker)
        return self._one.read(sources, language, answers)

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """See Translator.translate."""
        return [read.text for read in self.read(texts, language, self.ask(texts, language))]
