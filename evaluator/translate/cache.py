"""Translations on disk: a translator that asks only for what it has never been asked."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from evaluator.answer_cache import AnswerCache, answer_key
from evaluator.translate.base import Talker, Translator
from evaluator_serving.budget import Budget
from evaluator_serving.errors import InputError


class CachedTranslator:
    """A translator that asks only for what the cache doesn't have, and keeps each batch's answers before it asks for more.

    `outcomes`: of a translator whose answers have to be read, what became of the distinct texts of the last call.
    """

    def __init__(
        self,
        inner: Translator,
        cache: AnswerCache,
        *,
        offline: bool = False,
        budget: Budget | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`offline` lets the cache alone serve; `budget` pays (None: an empty one); `report` gets progress."""
        self.inner = inner
        self.cache = cache
        self.budget = budget or Budget(0.0)
        self.outcomes: Counter[str] = Counter()
        self._offline = offline
        self._report = report

    def translate(self, texts: Sequence[str], language: str) -> list[str]:
        """The texts in `language`, in their order.

        Raises InputError, before anything is asked, where answers are missing and may not be asked for: offline, or dearer
        than what is left in the purse.
        """
        system, parameters = self.inner.system, self.inner.parameters
        keys = {text: answer_key(text, system, language, dict(parameters)) for text in texts}
        missing = [text for text, key in keys.items() if key not in self.cache]
        if missing:
            self._check(missing, language)
        for start in range(0, len(missing), self.inner.batch):
            batch = missing[start : start + self.inner.batch]
            answers = self._asked(batch, language)
            self.budget.spend(self._cost(batch))
            about = {"system": system, "language": language, "parameters": dict(parameters)}
            pairs = zip(batch, answers, strict=True)
            self.cache.add([{"key": keys[text], "text": text, **about, "answer": answer} for text, answer in pairs])
            self._report(f"{system} {language}: {start + len(batch)} of {len(missing)} texts")
        return self._read(texts, keys, language)

    def _asked(self, batch: Sequence[str], language: str) -> Sequence[Any]:
        return self.inner.ask(batch, language) if isinstance(self.inner, Talker) else self.inner.translate(batch, language)

    def _read(self, texts: Sequence[str], keys: dict[str, str], language: str) -> list[str]:
        if not isinstance(self.inner, Talker):
            return [self.cache[keys[text]] for text in texts]
        read = self.inner.read([*keys], language, [self.cache[key] for key in keys.values()])
        found = dict(zip(keys, read, strict=True))
        self.outcomes = Counter(one.outcome for one in found.values())
        return [found[text].text for text in texts]

    def _cost(self, texts: Sequence[str]) -> float:
        return self.inner.price * sum(map(len, texts)) / 1e6

    def _check(self, missing: Sequence[str], language: str) -> None:
        if self._offline:
            raise InputError(
                f"{len(missing)} texts have no {self.inner.system} translation to {language} in {self.cache.path}, the first "
                f"{missing[0]!r}: leave --offline out to ask for them"
            )
        cost = self._cost(missing)
        if not cost:
            return
        characters = sum(map(len, missing))
        self._report(f"{self.inner.system}: {characters:,} characters in {len(missing):,} texts, about ${cost:.2f}")
        if not self.budget.holds(cost):
            raise InputError(
                f"{self.inner.system} would cost about ${self.budget.spent + cost:.2f} for {characters:,} characters, more "
                f"than ${float(self.budget):.2f}: allow it with --max-cost"
            )
