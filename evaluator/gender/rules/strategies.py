"""Strategies for finding the first person's gender; a language's file selects and orders them, and has the words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from evaluator.gender.rules.forms import Forms, WordKind
from evaluator.gender.text import Sentence
from evaluator.gender.verdict import Gender


@dataclass(frozen=True, slots=True)
class Evidence:
    """A gender found at a token of the sentence."""

    gender: Gender
    position: int


class Strategy(Protocol):
    """One rule: yields evidence, best first."""

    @property
    def name(self) -> str: ...

    def find(self, sentence: Sentence) -> Iterator[Evidence]: ...


@dataclass(frozen=True, slots=True)
class AuxiliaryParticiple:
    """The participle nearest to a first-person auxiliary, within the clause: *som* … *robil*, *robila* … *som*.

    bridges: conjunctions that join less than clauses (*nikoho a ničoho som sa nebál*), crossed when nothing is nearer.
    others: words in the clause that make somebody else its subject, for auxiliaries that serve all persons.
    """

    name: str
    auxiliaries: frozenset[str]
    participles: Forms
    bridges: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for auxiliary in sentence.find(self.auxiliaries):
            if self.others and any(sentence.words[position] in self.others for position in sentence.clause(auxiliary)):
                continue
            for position in chain(sentence.nearest(auxiliary), sentence.rightwards_over(auxiliary, self.bridges)):
                gender = self.participles.gender(sentence.words[position])
                if gender:
                    yield Evidence(gender, position)
                    break


@dataclass(frozen=True, slots=True)
class Tail:
    """Words that may follow a predicate adjective; any other word is treated as its noun (*som dobrý pracovník*).

    words: prepositions, pronouns, particles, adverbs; endings: those of infinitives and adverbs;
    joins: conjunctions and commas that may lead to a second adjective, which must then stand without a noun too.
    """

    words: frozenset[str]
    endings: tuple[str, ...]
    joins: frozenset[str]

    def is_free(self, sentence: Sentence, position: int, adjectives: Forms, gender: Gender) -> bool:
        """Whether no noun follows the adjective before `position`."""
        while position < len(sentence.words):
            word = sentence.words[position]
            if adjectives.gender(word) == gender:
                position += 1
            elif word in self.joins:
                return self._no_noun_after_join(sentence, position + 1, adjectives, gender)
            else:
                return sentence.is_break(position) or word in self.words or word.endswith(self.endings)
        return True

    def _no_noun_after_join(self, sentence: Sentence, position: int, adjectives: Forms, gender: Gender) -> bool:
        while position < len(sentence.words) and (
            sentence.words[position] in self.words or sentence.words[position] in self.joins
        ):
            position += 1
        if position < len(sentence.words) and adjectives.gender(sentence.words[position]) == gender:
            return self.is_free(sentence, position + 1, adjectives, gender)
        return True


@dataclass(frozen=True, slots=True)
class PredicateAdjective:
    """An adjective or passive participle that is the predicate of a first-person copula: *som hrdý*, *hrdá som*.

    tail: what may follow the adjective; others: words in the clause that make somebody else its subject.
    """

    name: str
    copulas: frozenset[str]
    adjectives: Forms
    tail: Tail
    others: frozenset[str] = frozenset()

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for copula in sentence.find(self.copulas):
            if self.others and any(sentence.words[position] in self.others for position in sentence.clause(copula)):
                continue
            evidence = self._after(sentence, copula) or self._before(sentence, copula)
            if evidence:
                yield evidence

    def _after(self, sentence: Sentence, copula: int) -> Evidence | None:
        for position in sentence.rightwards(copula):
            gender = self.adjectives.gender(sentence.words[position])
            if gender:
                free = self.tail.is_free(sentence, position + 1, self.adjectives, gender)
                return Evidence(gender, position) if free else None
        return None

    def _before(self, sentence: Sentence, copula: int) -> Evidence | None:
        for position in sentence.leftwards(copula):
            gender = self.adjectives.gender(sentence.words[position])
            if gender:
                rest = copula + 1 if position == copula - 1 else position + 1
                free = rest == copula or self.tail.is_free(sentence, rest, self.adjectives, gender)
                return Evidence(gender, position) if free else None
        return None


@dataclass(frozen=True, slots=True)
class FixedPairs:
    """Words that show the speaker's gender in any position: *rád / ráda*, *sám / sama*.

    others: words in the clause that make them somebody else's (*brat má rád more*).
    not_after: words before which they mean something else (Polish *ten sam*, the same).
    """

    name: str
    pairs: Forms
    others: frozenset[str] = frozenset()
    not_after: frozenset[str] = frozenset()

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for position, word in enumerate(sentence.words):
            gender = self.pairs.gender(word)
            if (
                gender
                and not (position and sentence.words[position - 1] in self.not_after)
                and not any(sentence.words[other] in self.others for other in sentence.clause(position))
            ):
                yield Evidence(gender, position)


@dataclass(frozen=True, slots=True)
class SelfPairs:
    """*Myself, alone* in a clause whose subject is *I*: *я могу сделать это сама*.

    pronouns, present: the pronoun *I* and first-person present verbs, one of which must stand in the clause.
    tail: what may follow (*один друг* is not *alone*). not_after: words before which it means something else.
    """

    name: str
    pairs: Forms
    pronouns: frozenset[str]
    present: WordKind
    tail: Tail
    not_after: frozenset[str] = frozenset()

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for position, word in enumerate(sentence.words):
            gender = self.pairs.gender(word)
            if (
                gender
                and not (position and sentence.words[position - 1] in self.not_after)
                and any(self._speaks(sentence.words[other]) for other in sentence.clause(position))
                and self.tail.is_free(sentence, position + 1, self.pairs, gender)
            ):
                yield Evidence(gender, position)

    def _speaks(self, word: str) -> bool:
        return word in self.pronouns or self.present.matches(word)


@dataclass(frozen=True, slots=True)
class PronounPast:
    """The past-tense verb of the pronoun *I*, to its right in the clause: *я* … *хотел*, *я* … *хотела*.

    verbs: past singular forms. others: nominative pronouns of other persons (another subject takes over).
    attributes: prepositions and genitive adjectives: a noun follows, however verb-like (*с самого начала*).
    bridges: conjunctions that join less than clauses (*я смело и решительно шёл*), crossed when nothing is nearer and
    no first-person present verb (`present`) came before.
    """

    name: str
    pronouns: frozenset[str]
    verbs: Forms
    others: frozenset[str]
    attributes: WordKind
    present: WordKind
    bridges: frozenset[str] = frozenset()

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for pronoun in sentence.find(self.pronouns):
            start = sentence.past_aside(pronoun)
            evidence = self._first(sentence, sentence.rightwards(start))
            if evidence is None and not any(
                self.present.matches(sentence.words[position]) for position in sentence.rightwards(start)
            ):
                evidence = self._first(sentence, sentence.rightwards_over(start, self.bridges))
            if evidence:
                yield evidence

    def _first(self, sentence: Sentence, positions: Iterable[int]) -> Evidence | None:
        for position in positions:
            word = sentence.words[position]
            if word in self.others:
                return None
            gender = self.verbs.gender(word)
            if gender and not (position and self.attributes.matches(sentence.words[position - 1])):
                return Evidence(gender, position)
        return None


@dataclass(frozen=True, slots=True)
class InvertedPast:
    """The past-tense verb before the pronoun *I*, only particles between: *хотел бы я*, *сказала я ей*."""

    name: str
    pronouns: frozenset[str]
    verbs: Forms
    particles: frozenset[str]

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for pronoun in sentence.find(self.pronouns):
            for position in sentence.leftwards(pronoun):
                word = sentence.words[position]
                if word in self.particles:
                    continue
                gender = self.verbs.gender(word)
                if gender:
                    yield Evidence(gender, position)
                break


@dataclass(frozen=True, slots=True)
class PronounAdjective:
    """A nominative adjective or participle that is the predicate of the pronoun *I*: *я готов*, *какая я глупая*.

    short: forms that are only ever predicates (*готов*); full: forms that may also stand before a noun (*добрая*), which
    `tail` rules out. others, present: nominative pronouns of other persons, and finite verbs: behind one, nothing is the
    predicate of *I* any more.
    """

    name: str
    pronouns: frozenset[str]
    short: Forms
    full: Forms
    tail: Tail
    others: frozenset[str]
    present: WordKind

    def find(self, sentence: Sentence) -> Iterator[Evidence]:
        for pronoun in sentence.find(self.pronouns):
            evidence = self._after(sentence, pronoun) or self._before(sentence, pronoun)
            if evidence:
                yield evidence

    def _after(self, sentence: Sentence, pronoun: int) -> Evidence | None:
        for position in sentence.rightwards(sentence.past_aside(pronoun)):
            if sentence.words[position] in self.others or self.present.matches(sentence.words[position]):
                return None
            if self._shows_gender(sentence, position):
                return self._evidence(sentence, position, position + 1)
        return None

    def _before(self, sentence: Sentence, pronoun: int) -> Evidence | None:
        if sentence.is_break(pronoun - 1):
            return None
        return self._evidence(sentence, pronoun - 1, pronoun + 1)

    def _shows_gender(self, sentence: Sentence, position: int) -> bool:
        word = sentence.words[position]
        return bool(self.short.gender(word) or self.full.gender(word))

    def _evidence(self, sentence: Sentence, position: int, rest: int) -> Evidence | None:
        word = sentence.words[position]
        gender = self.short.gender(word)
        if gender:
            return Evidence(gender, position)
        gender = self.full.gender(word)
        if gender and self.tail.is_free(sentence, rest, self.full, gender):
            return Evidence(gender, position)
        return None
