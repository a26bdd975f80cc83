"""Cached translations: only texts that are not in the cache are sent to the translator."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from evaluator.answer_cache import AnswerCache, answer_key
from evaluator.translate.base import ChatTranslator, Translator, answers_of
from evaluator_serving.budget import Budget
from evaluator_serving.errors import InputError


class CachedTranslator:
    """Translates the texts that the cache lacks and stores each batch before requesting the next.

    `outcomes` counts the outcomes of the last call's distinct texts, for a ChatTranslator.
    """

    def __init__(
        self,
        inner: Translator,
        cache: AnswerCache,
        *,
        offline: bool = False,
        budget: Budget | None = None,
        report: Callable[[str], None] = lambda line: None,
        copies: Callable[[Sequence[str], str], Sequence[Any]] | None = None,
        workers: int = 1,
    ) -> None:
        """`offline` uses the cache only; `budget` limits the cost (None: free translators only); `report` receives progress.

        `copies` answers in place of the translator, with a batch for each of its `workers`.
        """
        self.inner = inner
        self.cache = cache
        self.budget = budget or Budget(0.0)
        self.outcomes: Counter[str] = Counter()
        self._offline = offline
        self._report = report
        self._answers = copies or partial(answers_of, inner)
        self._batch = inner.batch * workers

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`, in their order.

        Raises InputError before any request if texts are missing and `offline` is set or their cost exceeds the budget.
        """
        system, parameters = self.inner.system, self.inner.parameters
        keys = {text: answer_key(text, system, language, dict(parameters)) for text in texts}
        missing = [text for text, key in keys.items() if key not in self.cache]
        if missing:
            self._check(missing, language)
        for start in range(0, len(missing), self._batch):
            batch = missing[start : start + self._batch]
            answers = self._answers(batch, language)
            self.budget.spend(self._cost(batch))
            metadata = {"system": system, "language": language, "parameters": dict(parameters)}
            pairs = zip(batch, answers, strict=True)
            self.cache.add([{"key": keys[text], "text": text, **metadata, "answer": answer} for text, answer in pairs])
            self._report(f"{system} {language}: {start + len(batch)} of {len(missing)} texts")
        return self._parsed(texts, keys, language)

    def _parsed(self, texts: Sequence[str], keys: dict[str, str], language: str) -> list[str]:
        if not isinstance(self.inner, ChatTranslator):
            return [self.cache[keys[text]] for text in texts]
        parsed = self.inner.parse([*keys], language, [self.cache[key] for key in keys.values()])
        translations = dict(zip(keys, parsed, strict=True))
        self.outcomes = Counter(one.outcome for one in parsed)
        return [translations[text].text for text in texts]

    def _cost(self, texts: Sequence[str]) -> float:
        return self.inner.price * sum(map(len, texts)) / 1e6

    def _check(self, missing: Sequence[str], language: str) -> None:
        if self._offline:
            raise InputError(
                f"{len(missing)} texts have no {self.inner.system} translation to {language} in {self.cache.path}, the first "
                f"{missing[0]!r}: remove --offline to translate them"
            )
        cost = self._cost(missing)
        if not cost:
            return
        characters = sum(map(len, missing))
        self._report(f"{self.inner.system}: {characters:,} characters in {len(missing):,} texts, about ${cost:.2f}")
        if not self.budget.holds(cost):
            raise InputError(
                f"{self.inner.system} would cost about ${self.budget.spent + cost:.2f} for {characters:,} characters, more "
                f"than the limit of ${float(self.budget):.2f}: raise --max-cost"
            )
