"""The rules over Universal Dependencies (GEST, machine translation): who agrees in gender with the first person.

A word shows the speaker's gender when it is a verb, auxiliary, adjective or determiner in the nominative singular with a
gender, and a first-person auxiliary or the pronoun *I* depends on it. The first rule that answers wins; rules that answer
both ways are a conflict. Only the first sentence of a text is read, as the published pipeline does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evaluator.gender.rules.forms import Forms, language_file, read
from evaluator.gender.text import serbian_to_latin
from evaluator.gender.ud.parser import Parser, UdSentence, UdToken
from evaluator.gender.verdict import UNKNOWN, Gender, Verdict

_GENDERS: dict[str, Gender] = {"Masc": "masculine", "Fem": "feminine"}


@dataclass(frozen=True, slots=True)
class UdRules:
    """What a language adds to the common rules (table `ud` of its file); all words in lower case.

    auxiliaries: first-person singular auxiliaries, for tagsets that give them no Person; pronouns: *I*;
    impersonal: auxiliaries of all persons (Slovene *bi*), the speaker's where the clause has no subject of its own;
    infinitives: *to be*; pairs: words that show the speaker's gender by themselves.
    """

    pairs: Forms
    pronouns: frozenset[str]
    infinitives: frozenset[str]
    auxiliaries: frozenset[str] = frozenset()
    impersonal: frozenset[str] = frozenset()

    @classmethod
    def of(cls, code: str) -> "UdRules":
        """The rules in a language's file."""
        content = language_file(code)
        return read(cls, content["ud"], content)


def shown_gender(token: UdToken) -> Gender | None:
    """The gender that an agreeing word shows; None for other parts of speech, plurals and oblique cases.

    Tags for several values count where one of them fits a single speaker: Czech *uměla* is `Gender=Fem,Neut|Number=Plur,Sing`.
    """
    if token.upos not in ("VERB", "AUX", "ADJ", "DET") or not _singular(token) or token.feature("Case") not in ("", "Nom"):
        return None
    genders = {_GENDERS[value] for value in token.feature("Gender").split(",") if value in _GENDERS}
    return genders.pop() if len(genders) == 1 else None


def _singular(token: UdToken) -> bool:
    """Whether the word may be singular: words without Number may."""
    return "Sing" in (token.feature("Number") or "Sing").split(",")


@dataclass(frozen=True, slots=True)
class _Found:
    rule: str
    gender: Gender
    token: UdToken


def _first_person_auxiliary(token: UdToken, rules: UdRules) -> bool:
    if not token.deprel.startswith(("aux", "cop")):
        return False
    by_features = token.upos == "AUX" and token.feature("Person") == "1" and _singular(token)
    return by_features or token.text.lower() in rules.auxiliaries


def _children(sentence: UdSentence, head: int) -> Iterator[UdToken]:
    return (token for token in sentence if token.head == head)


def _agreeing(rule: str, speakers: Iterable[UdToken], sentence: UdSentence) -> Iterator[_Found]:
    """The heads of the speaker's words; where a head is no agreeing word (*bola som učiteľka*), its other auxiliaries."""
    by_id = {token.id: token for token in sentence}
    for speaker in speakers:
        head = by_id.get(speaker.head)
        if head is None:
            continue
        gender = shown_gender(head)
        if gender:
            yield _Found(rule, gender, head)
            continue
        for sibling in _children(sentence, head.id):
            gender = shown_gender(sibling)
            if gender and sibling.deprel.startswith(("aux", "cop")):
                yield _Found(rule, gender, sibling)


def _auxiliary_head(sentence: UdSentence, rules: UdRules) -> Iterator[_Found]:
    """*robila som*, *som hrdá*, *zrobiła|m*: the head of a first-person auxiliary."""
    return _agreeing("auxiliary-head", (t for t in sentence if _first_person_auxiliary(t, rules)), sentence)


def _pronoun_head(sentence: UdSentence, rules: UdRules) -> Iterator[_Found]:
    """*я хотела*, *я готова*: the head of the pronoun *I* as subject."""
    subjects = (t for t in sentence if t.text.lower() in rules.pronouns and t.deprel.startswith("nsubj"))
    return _agreeing("pronoun-head", subjects, sentence)


def _impersonal_head(sentence: UdSentence, rules: UdRules) -> Iterator[_Found]:
    """*plavala bi*: the head of an auxiliary of all persons, where it has no subject."""
    auxiliaries = (
        token
        for token in sentence
        if token.text.lower() in rules.impersonal
        and not any(sibling.deprel.startswith("nsubj") for sibling in _children(sentence, token.head))
    )
    return _agreeing("impersonal-auxiliary-head", auxiliaries, sentence)


def _infinitive_copula(sentence: UdSentence, rules: UdRules) -> Iterator[_Found]:
    """*chcem byť silná*: the head of *to be* under a first-person verb."""
    by_id = {token.id: token for token in sentence}
    for token in sentence:
        head = by_id.get(token.head)
        if head is None or token.text.lower() not in rules.infinitives or not token.deprel.startswith("cop"):
            continue
        governor = by_id.get(head.head)
        gender = shown_gender(head)
        if gender and governor and governor.feature("Person") == "1" and _singular(governor):
            yield _Found("infinitive-copula", gender, head)


def _fixed_pair(sentence: UdSentence, rules: UdRules) -> Iterator[_Found]:
    """*rád*, *sama*: unless the word is an auxiliary (Croatian *sam*)."""
    for token in sentence:
        gender = rules.pairs.gender(token.text.lower())
        if gender and token.upos != "AUX" and token.feature("Case") in ("", "Nom") and _singular(token):
            yield _Found("fixed-pair", gender, token)


_RULES = (_auxiliary_head, _pronoun_head, _infinitive_copula, _fixed_pair, _impersonal_head)


class UdDetector:
    """`GenderDetector` over the parses of any `Parser`."""

    def __init__(self, language: str, parser: Parser) -> None:
        self._language = language
        self._parser = parser

    @property
    def language(self) -> str:
        """Two-letter code of the language."""
        return self._language

    def detect(self, texts: Sequence[str]) -> list[Verdict]:
        """One verdict per text. A text without a sentence is unknown."""
        rules = UdRules.of(self._language)
        firsts = (parse[0] if parse else () for parse in self._parser.parse(texts, self._language))
        if self._language == "sr":  # the rules' words are in the Latin script
            firsts = (tuple(replace(token, text=serbian_to_latin(token.text)) for token in first) for first in firsts)
        return [judge(first, rules) for first in firsts]


def judge(sentence: UdSentence, rules: UdRules) -> Verdict:
    """Apply the rules to one parsed sentence."""
    found = [item for rule in _RULES for item in rule(sentence, rules)]
    if not found:
        return UNKNOWN
    first = found[0]
    return Verdict(first.gender, first.rule, first.token.text, any(item.gender != first.gender for item in found))
