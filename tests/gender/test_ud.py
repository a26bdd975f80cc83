"""Rules over Universal Dependencies parses, on sentences parsed by hand."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.gender import LANGUAGES, ud_detector
from evaluator.gender.ud.conllu import ConlluParser, read_conllu
from evaluator.gender.ud.parse_cache import CachedParser
from evaluator.gender.ud.parser import Parse, UdToken
from evaluator.gender.ud.rules import UdRules, judge
from evaluator_serving.errors import InputError


def parse(*rows: str) -> tuple[UdToken, ...]:
    """Words written as `text UPOS head deprel feats`, feats may be left out."""
    tokens = []
    for number, row in enumerate(rows, start=1):
        text, upos, head, deprel, *feats = row.split()
        tokens.append(UdToken(number, text, upos, int(head), deprel, feats[0] if feats else ""))
    return tuple(tokens)


# language, rule, word, gender, parse
EXAMPLES = [
    (
        "sk",
        "auxiliary-head",
        "Piekla",
        "feminine",
        parse("Piekla VERB 0 root Gender=Fem|Number=Sing", "som AUX 1 aux Person=1"),
    ),
    ("sk", "auxiliary-head", "hrdý", "masculine", parse("Som AUX 2 cop", "hrdý ADJ 0 root Case=Nom|Gender=Masc|Number=Sing")),
    (
        "sk",
        "auxiliary-head",
        "Bola",
        "feminine",
        parse(
            "Bola AUX 3 cop Gender=Fem|Number=Sing",
            "som AUX 3 aux Person=1",
            "učiteľka NOUN 0 root Case=Nom|Gender=Fem|Number=Sing",
        ),
    ),
    (
        "sk",
        "infinitive-copula",
        "silná",
        "feminine",
        parse("Chcem VERB 0 root Number=Sing|Person=1", "byť AUX 3 cop VerbForm=Inf", "silná ADJ 1 xcomp Case=Nom|Gender=Fem"),
    ),
    ("sk", "fixed-pair", "Rád", "masculine", parse("Rád ADJ 2 advmod Gender=Masc|Number=Sing", "spievam VERB 0 root Person=1")),
    # multiword tokens come as their words: *kdybych* is kdyby + bych, *upiekłam* is upiekła + m
    (
        "cs",
        "auxiliary-head",
        "uměla",
        "feminine",
        parse("kdyby SCONJ 3 mark", "bych AUX 3 aux Person=1", "uměla VERB 0 root Gender=Fem,Neut|Number=Plur,Sing"),
    ),
    (
        "pl",
        "auxiliary-head",
        "upiekła",
        "feminine",
        parse("upiekła VERB 0 root Gender=Fem|Number=Sing", "m AUX 1 aux:clitic Number=Sing|Person=1", "chleb NOUN 1 obj"),
    ),
    (
        "hr",
        "auxiliary-head",
        "Pekao",
        "masculine",
        parse("Pekao VERB 0 root Gender=Masc|Number=Sing", "sam AUX 1 aux Person=1"),
    ),
    ("sr", "auxiliary-head", "Pekla", "feminine", parse("Пекла VERB 0 root Gender=Fem|Number=Sing", "сам AUX 1 aux")),
    (
        "sl",
        "auxiliary-head",
        "utrujena",
        "feminine",
        parse("sem AUX 2 cop Person=1", "utrujena ADJ 0 root Case=Nom|Gender=Fem"),
    ),
    (
        "sl",
        "impersonal-auxiliary-head",
        "plaval",
        "masculine",
        parse("Raje ADV 3 advmod", "bi AUX 3 aux Mood=Cnd", "plaval VERB 0 root Gender=Masc|Number=Sing"),
    ),
    (
        "ru",
        "pronoun-head",
        "испекла",
        "feminine",
        parse("Я PRON 2 nsubj", "испекла VERB 0 root Gender=Fem|Number=Sing|Tense=Past"),
    ),
    (
        "ru",
        "pronoun-head",
        "готов",
        "masculine",
        parse("Я PRON 2 nsubj", "готов ADJ 0 root Gender=Masc|Number=Sing|Variant=Short"),
    ),
    (
        "ru",
        "pronoun-head",
        "была",
        "feminine",
        parse("Я PRON 3 nsubj", "была AUX 3 cop Gender=Fem|Number=Sing", "поваром NOUN 0 root Case=Ins|Gender=Masc"),
    ),
    ("uk", "pronoun-head", "спік", "masculine", parse("Я PRON 2 nsubj", "спік VERB 0 root Gender=Masc|Number=Sing")),
    ("be", "pronoun-head", "спякла", "feminine", parse("Я PRON 2 nsubj", "спякла VERB 0 root Gender=Fem|Number=Sing")),
]

NEUTRAL = [
    ("sk", parse("Som AUX 3 cop Person=1", "dobrý ADJ 3 amod Case=Nom|Gender=Masc", "kuchár NOUN 0 root Gender=Masc")),
    ("sk", parse("Boli VERB 0 root Gender=Masc|Number=Plur", "sme AUX 1 aux Number=Plur|Person=1")),
    ("hr", parse("Kapetan NOUN 0 root Gender=Masc", "sam AUX 1 cop Person=1")),
    (
        "sl",
        parse("Brat NOUN 3 nsubj Gender=Masc", "bi AUX 3 aux", "plaval VERB 0 root Gender=Masc|Number=Sing"),
    ),
    (
        "ru",
        parse("Я PRON 2 nsubj", "знаю VERB 0 root Person=1", "он PRON 4 nsubj", "опоздал VERB 2 ccomp Gender=Masc|Number=Sing"),
    ),
]


@pytest.mark.parametrize(("language", "rule", "word", "gender", "sentence"), EXAMPLES)
def test_each_rule_on_an_example(language: str, rule: str, word: str, gender: str, sentence: tuple[UdToken, ...]) -> None:
    verdict = ud_detector(language, FixedParser([(sentence,)])).detect(["…"])[0]
    assert (verdict.rule, verdict.word, verdict.gender, verdict.conflict) == (rule, word, gender, False)


@pytest.mark.parametrize(("language", "sentence"), NEUTRAL)
def test_neutral(language: str, sentence: tuple[UdToken, ...]) -> None:
    assert judge(sentence, UdRules.of(language)).gender == "unknown"


class FixedParser:
    """Answers the same parses whatever is asked, and counts the texts."""

    def __init__(self, parses: Sequence[Parse], name: str = "fixed") -> None:
        self.parses, self.name, self.asked = list(parses), name, 0

    def fingerprint(self, language: str) -> str:
        return self.name

    def parse(self, texts: Sequence[str], language: str) -> list[Parse]:
        self.asked += len(texts)
        return [self.parses[0] if text.strip() else () for text in texts]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_ud_rules(language: str) -> None:
    assert UdRules.of(language).infinitives


def test_rules_that_disagree_are_a_conflict_and_only_the_first_sentence_counts() -> None:
    first = parse("Bola VERB 0 root Gender=Fem|Number=Sing", "som AUX 1 aux Person=1", "sám ADJ 1 xcomp Case=Nom|Gender=Masc")
    second = parse("Bol VERB 0 root Gender=Masc|Number=Sing", "som AUX 1 aux Person=1")
    verdict = ud_detector("sk", FixedParser([(first, second)])).detect(["x"])[0]
    assert (verdict.gender, verdict.conflict) == ("feminine", True)


def test_blank_texts_and_unknown_languages() -> None:
    assert ud_detector("sk", FixedParser([()])).detect(["", "a"])[1].gender == "unknown"
    with pytest.raises(InputError, match="no gender rules for language 'fi'"):
        ud_detector("fi", FixedParser([()]))


CONLLU = """\
# sent_id = 1
# text = Gdybym wiedziała.
1-3\tGdybym\t_\t_\t_\t_\t_\t_\t_\t_
1\tGdy\tgdy\tSCONJ\t_\t_\t4\tmark\t_\t_
2\tby\tby\tAUX\t_\t_\t4\taux:cnd\t_\t_
3\tm\tbyć\tAUX\t_\tNumber=Sing|Person=1\t4\taux:clitic\t_\t_
4\twiedziała\twiedzieć\tVERB\t_\tGender=Fem|Number=Sing\t0\troot\t_\t_
4.1\tx\tx\tX\t_\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

# text = Jestem w domu.
1\tJestem\tbyć\tAUX\t_\tNumber=Sing|Person=1\t3\tcop\t_\t_
2\tw\tw\tADP\t_\t_\t3\tcase\t_\t_
3\tdomu\tdom\tNOUN\t_\tCase=Loc|Gender=Masc\t0\troot\t_\t_
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_
"""


def test_conllu_file(tmp_path: Path) -> None:
    path = tmp_path / "parses.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    (text, tokens), (_, second) = read_conllu(path)
    assert text == "Gdybym wiedziała."
    assert [token.text for token in tokens] == ["Gdy", "by", "m", "wiedziała", "."]
    assert tokens[2].feature("Person") == "1"
    assert tokens[0].feats == ""
    assert second[2].feature("Case") == "Loc"

    detector = ud_detector("pl", ConlluParser(path))
    verdicts = detector.detect(["Gdybym  wiedziała.", "Jestem w domu.", "", "Gdybym wiedziała. Jestem w domu."])
    assert [verdict.gender for verdict in verdicts] == ["feminine", "unknown", "unknown", "feminine"]
    with pytest.raises(InputError, match=r"parses\.conllu has no parse of 'Pada\.'"):
        detector.detect(["Pada."])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tPada\tpadać\n", "line 1: 3 tab-separated fields"),
        ("x\ta\ta\tX\t_\t_\t0\troot\t_\t_\n", "line 1: id 'x'"),
    ],
)
def test_broken_conllu_says_where(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "broken.conllu"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        ConlluParser(path)


def test_cached_parser_asks_once_a_text_language_and_model(tmp_path: Path) -> None:
    sentence = (parse("Bol VERB 0 root Gender=Masc|Number=Sing", "som AUX 1 aux Person=1"),)
    inner = FixedParser([sentence])
    texts = ["a", "b", "a", ""]
    first = CachedParser(inner, tmp_path, batch=2).parse(texts, "sk")
    assert inner.asked == 3  # a, b and the blank one
    again = CachedParser(inner, tmp_path).parse([*texts, "c"], "sk")
    assert inner.asked == 4
    assert first == again[:4] == [sentence, sentence, sentence, ()]
    CachedParser(inner, tmp_path).parse(["a"], "cs")
    assert inner.asked == 5
    CachedParser(FixedParser([sentence], name="another model"), tmp_path).parse(["a"], "sk")
    other = FixedParser([sentence], name="another model")
    CachedParser(other, tmp_path).parse(["a"], "sk")
    assert other.asked == 0


def stanza_word(id_: int, text: str, upos: str, head: int, deprel: str, feats: str | None) -> SimpleNamespace:
    return SimpleNamespace(id=id_, text=text, upos=upos, head=head, deprel=deprel, feats=feats)


def test_stanza_adapter_on_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        stanza_word(1, "Bola", "VERB", 0, "root", "Gender=Fem|Number=Sing"),
        stanza_word(2, "som", "AUX", 1, "aux", "Person=1"),
    ]

    def pipeline(language: str, **options: Any) -> Any:
        if language != "sk":
            raise FileNotFoundError("resources.json")
        return lambda text: SimpleNamespace(sentences=[SimpleNamespace(words=words)])

    monkeypatch.setitem(__import__("sys").modules, "stanza", SimpleNamespace(__version__="1.10", Pipeline=pipeline))
    from evaluator.gender.ud.optional_parsers import StanzaParser

    parser = StanzaParser()
    assert [verdict.gender for verdict in ud_detector("sk", parser).detect(["Bola som.", " "])] == ["feminine", "unknown"]
    assert parser.fingerprint("sk") == "stanza-1.10-sk"
    with pytest.raises(InputError, match=r'run stanza.download\("cs"\)'):
        parser.parse(["x"], "cs")


def test_spacy_adapter_on_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def token(i: int, text: str, pos: str, dep: str, morph: str, space: bool = False) -> SimpleNamespace:
        return SimpleNamespace(i=i, text=text, pos_=pos, dep_=dep, morph=morph, is_space=space, head=None)

    tokens = [
        token(4, " ", "SPACE", "dep", "", True),
        token(5, "Я", "PRON", "nsubj", ""),
        token(6, "испекла", "VERB", "ROOT", "Gender=Fem|Number=Sing"),
    ]
    for t in tokens:
        t.head = tokens[2]
    document = SimpleNamespace(text="Я испекла", sents=[tokens])
    model = SimpleNamespace(
        meta={"lang": "ru", "name": "small", "version": "3.8"}, pipe=lambda texts: [document for _ in texts]
    )

    def load(name: str) -> Any:
        if name != "ru_core_news_sm":
            raise OSError(name)
        return model

    monkeypatch.setitem(__import__("sys").modules, "spacy", SimpleNamespace(load=load))
    from evaluator.gender.ud.optional_parsers import SpacyParser

    parser = SpacyParser()
    assert ud_detector("ru", parser).detect(["Я испекла"])[0].word == "испекла"
    assert parser.parse(["x"], "ru")[0][0][0].head == 2
    assert parser.fingerprint("ru") == "spacy-ru-small-3.8"
    with pytest.raises(InputError, match="spaCy has no model for 'sk'"):
        parser.parse(["x"], "sk")
    with pytest.raises(InputError, match="python -m spacy download uk_core_news_sm"):
        parser.parse(["x"], "uk")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "stanza", None)
    from evaluator.gender.ud.optional_parsers import StanzaParser

    with pytest.raises(InputError, match="pip install stanza"):
        StanzaParser()
