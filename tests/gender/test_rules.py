"""Every rule of every language on sentences made up for it, and the look-alikes that the rules must not fall for."""

import pytest

from evaluator.gender import LANGUAGES, rules_detector
from evaluator_serving.errors import InputError

# language, rule, sentence, word that decides, gender
EXAMPLES = [
    # Slovak
    ("sk", "auxiliary-participle", "Včera som piekol chlieb.", "piekol", "masculine"),
    ("sk", "auxiliary-participle", "Včera som piekla chlieb.", "piekla", "feminine"),
    ("sk", "auxiliary-participle", "Stratila som kľúče.", "Stratila", "feminine"),
    ("sk", "auxiliary-participle", "Povedala, že som to pokazil.", "pokazil", "masculine"),
    ("sk", "auxiliary-participle", "V lete som vlakmi a loďami cestovala.", "cestovala", "feminine"),
    ("sk", "predicate-adjective", "Som hrdý na svoj bicykel.", "hrdý", "masculine"),
    ("sk", "predicate-adjective", "Hrdá som na teba.", "Hrdá", "feminine"),
    ("sk", "predicate-adjective", "Som unavená a hladná.", "unavená", "feminine"),
    ("sk", "predicate-adjective", "Zajtra budem odvážnejšia.", "odvážnejšia", "feminine"),
    ("sk", "infinitive-copula", "Nechcem byť lakomý.", "lakomý", "masculine"),
    ("sk", "infinitive-copula", "Musím byť opatrná, lebo sa šmýka.", "opatrná", "feminine"),
    ("sk", "fixed-pair", "Rád spievam v zbore.", "Rád", "masculine"),
    ("sk", "fixed-pair", "Bicykel si opravím sama.", "sama", "feminine"),
    # Czech
    ("cs", "auxiliary-participle", "Včera jsem pekl chleba.", "pekl", "masculine"),
    ("cs", "auxiliary-participle", "Kéž bych uměla plavat.", "uměla", "feminine"),
    ("cs", "auxiliary-participle", "Kdybych věděl víc, řeknu ti to.", "věděl", "masculine"),
    ("cs", "auxiliary-participle", "Prosili mě, abych zpívala.", "zpívala", "feminine"),
    ("cs", "pronoun-participle", "Všichni odešli a já zůstala.", "zůstala", "feminine"),
    ("cs", "pronoun-participle", "Všichni odešli a já zůstal.", "zůstal", "masculine"),
    ("cs", "predicate-adjective", "Jsem hladový jako vlk.", "hladový", "masculine"),
    ("cs", "predicate-adjective", "Na výlet jsem připravena.", "připravena", "feminine"),
    ("cs", "infinitive-copula", "Chci být bohatá.", "bohatá", "feminine"),
    ("cs", "infinitive-copula", "Chci být bohatý.", "bohatý", "masculine"),
    ("cs", "fixed-pair", "Ráda zpívám ve sboru.", "Ráda", "feminine"),
    ("cs", "fixed-pair", "Kolo si opravím sám.", "sám", "masculine"),
    # Croatian
    ("hr", "auxiliary-participle", "Jučer sam pekao kruh.", "pekao", "masculine"),
    ("hr", "auxiliary-participle", "Pekla sam kruh.", "Pekla", "feminine"),
    ("hr", "auxiliary-participle", "Nisam znala za poslasticu.", "znala", "feminine"),
    ("hr", "auxiliary-participle", "Rado bih otplovio na otok.", "otplovio", "masculine"),
    ("hr", "predicate-adjective", "Ponosan sam na brod.", "Ponosan", "masculine"),
    ("hr", "predicate-adjective", "Danas sam umorna.", "umorna", "feminine"),
    ("hr", "infinitive-copula", "Želim biti mudar.", "mudar", "masculine"),
    ("hr", "infinitive-copula", "Želim biti mudra.", "mudra", "feminine"),
    ("hr", "fixed-pair", "Bicikl popravljam sama.", "sama", "feminine"),
    # Serbian
    ("sr", "auxiliary-participle", "Juče sam pekao hleb.", "pekao", "masculine"),
    ("sr", "auxiliary-participle", "Јуче сам пекла хлеб.", "pekla", "feminine"),
    ("sr", "predicate-adjective", "Поносна сам на брод.", "Ponosna", "feminine"),
    ("sr", "predicate-adjective", "Srećan sam što pada kiša.", "Srećan", "masculine"),
    ("sr", "infinitive-copula", "Трудим се бити храбар.", "hrabar", "masculine"),
    ("sr", "fixed-pair", "Бицикл поправљам сама.", "sama", "feminine"),
    # Slovene
    ("sl", "auxiliary-participle", "Včeraj sem spekel kruh.", "spekel", "masculine"),
    ("sl", "auxiliary-participle", "Nisem vedela za vlak.", "vedela", "feminine"),
    ("sl", "auxiliary-participle", "Jutri bom kuhala golaž.", "kuhala", "feminine"),
    ("sl", "predicate-adjective", "Ponosen sem na kolo.", "Ponosen", "masculine"),
    ("sl", "predicate-adjective", "Danes sem utrujena.", "utrujena", "feminine"),
    ("sl", "infinitive-copula", "Hočem biti modra.", "modra", "feminine"),
    ("sl", "infinitive-copula", "Hočem biti bogat.", "bogat", "masculine"),
    ("sl", "fixed-pair", "Rada pojem v zboru.", "Rada", "feminine"),
    ("sl", "fixed-pair", "Kolo popravim sam.", "sam", "masculine"),
    ("sl", "conditional", "Raje bi plavala v jezeru.", "plavala", "feminine"),
    ("sl", "conditional", "Raje bi plaval v jezeru.", "plaval", "masculine"),
    # Polish
    ("pl", "personal-ending", "Wczoraj upiekłem chleb.", "upiekłem", "masculine"),
    ("pl", "personal-ending", "Chętnie zjadłabym zupę.", "zjadłabym", "feminine"),
    ("pl", "personal-ending", "Powinnam wcześniej wstawać.", "Powinnam", "feminine"),
    ("pl", "personal-ending", "Powinienem wcześniej wstawać.", "Powinienem", "masculine"),
    ("pl", "moving-ending", "Mama prosi, żebym wróciła.", "wróciła", "feminine"),
    ("pl", "moving-ending", "Gdybym wiedział, to co innego.", "wiedział", "masculine"),
    ("pl", "future-participle", "Jutro będę piekła ciasto.", "piekła", "feminine"),
    ("pl", "future-participle", "Jutro będę piekł ciasto.", "piekł", "masculine"),
    ("pl", "predicate-adjective", "Jestem głodny jak wilk.", "głodny", "masculine"),
    ("pl", "predicate-adjective", "Czuję się zmęczona.", "zmęczona", "feminine"),
    ("pl", "infinitive-copula", "Chcę być mądra.", "mądra", "feminine"),
    ("pl", "infinitive-copula", "Chcę być bogaty.", "bogaty", "masculine"),
    ("pl", "fixed-pair", "Rower naprawiam sama.", "sama", "feminine"),
    ("pl", "fixed-pair", "Rower naprawiam sam.", "sam", "masculine"),
    # Russian
    ("ru", "pronoun-past", "Вчера я испёк хлеб.", "испёк", "masculine"),
    ("ru", "pronoun-past", "Я, честно говоря, испугалась.", "испугалась", "feminine"),
    ("ru", "pronoun-past", "Я с самого начала сомневался.", "сомневался", "masculine"),
    ("ru", "pronoun-past", "Я тихо и осторожно спустилась.", "спустилась", "feminine"),
    ("ru", "predicate-adjective", "Я готов к походу.", "готов", "masculine"),
    ("ru", "predicate-adjective", "Какая я забывчивая!", "забывчивая", "feminine"),
    ("ru", "predicate-adjective", "Я довольна погодой.", "довольна", "feminine"),
    ("ru", "inverted-past", "Хотела бы я летать.", "Хотела", "feminine"),
    ("ru", "inverted-past", "Хотел бы я летать.", "Хотел", "masculine"),
    ("ru", "alone", "Велосипед я чиню сама.", "сама", "feminine"),
    ("ru", "alone", "Живу один.", "один", "masculine"),
    # Ukrainian
    ("uk", "pronoun-past", "Учора я спік хліб.", "спік", "masculine"),
    ("uk", "pronoun-past", "Я завжди хотіла плавати.", "хотіла", "feminine"),
    ("uk", "pronoun-past", "Я зрозумів, що йде дощ.", "зрозумів", "masculine"),
    ("uk", "predicate-adjective", "Я готова до походу.", "готова", "feminine"),
    ("uk", "predicate-adjective", "Я повинен більше спати.", "повинен", "masculine"),
    ("uk", "inverted-past", "Хотіла б я літати.", "Хотіла", "feminine"),
    ("uk", "inverted-past", "Хотів би я літати.", "Хотів", "masculine"),
    ("uk", "alone", "Велосипед я лагоджу сама.", "сама", "feminine"),
    ("uk", "alone", "Живу один.", "один", "masculine"),
    # Belarusian
    ("be", "pronoun-past", "Учора я спёк хлеб.", "спёк", "masculine"),
    ("be", "pronoun-past", "Я заўсёды хацела плаваць.", "хацела", "feminine"),
    ("be", "pronoun-past", "Я купіў веласіпед.", "купіў", "masculine"),
    ("be", "predicate-adjective", "Я гатовая да паходу.", "гатовая", "feminine"),
    ("be", "predicate-adjective", "Я павінен больш спаць.", "павінен", "masculine"),
    ("be", "inverted-past", "Хацела б я лётаць.", "Хацела", "feminine"),
    ("be", "inverted-past", "Хацеў бы я лётаць.", "Хацеў", "masculine"),
    ("be", "alone", "Веласіпед я рамантую сама.", "сама", "feminine"),
    ("be", "alone", "Жыву адзін.", "адзін", "masculine"),
]

# language, sentence in which nothing says who speaks
NEUTRAL = [
    ("sk", "Som dobrý pracovník."),  # the noun is the predicate
    ("sk", "Som pokojný a trpezlivý človek."),
    ("sk", "Brat bol doma, ja nie som."),
    ("sk", "Stanovili sme si ciele."),
    ("sk", "Páči sa mi more."),
    ("sk", "Brat má rád more."),
    ("cs", "Sestra má ráda moře."),
    ("sl", "Brat ima rad morje."),
    ("pl", "To ten sam rower."),
    ("cs", "Jsem manažerem hotelu."),
    ("cs", "Jsem tišší než sestra."),  # soft adjectives have one form
    ("cs", "Možná jsem doma."),
    ("hr", "Ja sam kapetan broda."),
    ("hr", "Dobar sam kuhar."),
    ("hr", "Volim more, posao i školu."),
    ("sr", "Ја сам капетан брода."),
    ("sl", "Sem dober kuhar."),
    ("sl", "Moj brat bi plaval v jezeru."),  # *bi* serves all persons
    ("pl", "Jestem dobrym kucharzem."),
    ("pl", "Zawsze wołam brata, gdy działam z zespołem."),  # a present form and a noun in -łam, -łem
    ("ru", "Я люблю море."),
    ("ru", "Я знаю, что он опоздал."),
    ("ru", "Я хороший повар."),
    ("ru", "Мне было холодно."),
    ("ru", "Один друг построил дом."),
    ("uk", "Я люблю море."),
    ("uk", "Я знаю, що він запізнився."),
    ("uk", "Я маю багато друзів."),
    ("be", "Я люблю мора."),
    ("be", "Я ведаю, што ён спазніўся."),
    ("be", "Я маю шмат сяброў."),
]


@pytest.mark.parametrize(("language", "rule", "sentence", "word", "gender"), EXAMPLES)
def test_each_rule_on_an_example(language: str, rule: str, sentence: str, word: str, gender: str) -> None:
    verdict = rules_detector(language).detect([sentence])[0]
    assert (verdict.gender, verdict.rule, verdict.word) == (gender, rule, word)
    assert not verdict.conflict


@pytest.mark.parametrize(("language", "sentence"), NEUTRAL)
def test_nothing_is_read_where_nothing_is_said(language: str, sentence: str) -> None:
    assert rules_detector(language).detect([sentence])[0].gender == "unknown"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_rule_has_an_example_of_each_gender(language: str) -> None:
    from evaluator.gender.rules.detector import RulesDetector

    detector = rules_detector(language)
    assert isinstance(detector, RulesDetector)
    rules = {strategy.name for strategy in detector.strategies}
    assert {rule for code, rule, *_ in EXAMPLES if code == language} == rules
    genders = {gender for code, _, _, _, gender in EXAMPLES if code == language}
    assert genders == {"masculine", "feminine"}
    assert detector.language == language


def test_first_rule_wins_and_disagreement_is_a_conflict() -> None:
    verdict = rules_detector("hr").detect(["Mislila sam da znam put, ali zalutao sam."])[0]
    assert (verdict.gender, verdict.word, verdict.conflict) == ("feminine", "Mislila", True)


def test_a_batch_keeps_its_order_and_empty_texts_are_unknown() -> None:
    verdicts = rules_detector("sk").detect(["Bola som tam.", "", "  \t", "…", "Bol som tam."])
    assert [verdict.gender for verdict in verdicts] == ["feminine", "unknown", "unknown", "unknown", "masculine"]
    assert (verdicts[1].rule, verdicts[1].word) == ("", "")
    assert rules_detector("sk").detect([]) == []


def test_only_the_first_sentence_is_read() -> None:
    detector = rules_detector("sl")
    assert detector.detect(["Dežuje. Bila sem doma."])[0].gender == "unknown"
    assert detector.detect(["Bila sem doma. Prišel sem pozno."])[0] == detector.detect(["Bila sem doma."])[0]


def test_serbian_reads_both_scripts_even_in_one_sentence() -> None:
    latin, cyrillic, mixed = rules_detector("sr").detect(
        ["Kupila sam džem i njoki.", "Купила сам џем и њоки.", "Купила sam џем i њоки."]
    )
    assert latin == cyrillic == mixed
    assert latin.gender == "feminine"


def test_latin_letters_inside_cyrillic_words() -> None:
    # the first o of "хотела" and the e of "хотел" are Latin here
    feminine, masculine = rules_detector("ru").detect(["Я хoтела спать.", "Я хотeл спать."])
    assert (feminine.gender, masculine.gender) == ("feminine", "masculine")


def test_a_text_in_another_script_is_unknown_rather_than_an_error() -> None:
    assert rules_detector("ru").detect(["Ya khotela spat."])[0].gender == "unknown"
    assert rules_detector("pl").detect(["我喜欢大海。"])[0].gender == "unknown"


def test_unicode_spellings_do_not_matter() -> None:
    import unicodedata

    composed = "Jsem hladový. "
    decomposed = unicodedata.normalize("NFD", composed)
    assert rules_detector("cs").detect([decomposed])[0].gender == "masculine"
    assert rules_detector("ru").detect(["Я хоте\u0301ла спать."])[0].gender == "feminine"  # stress mark
    assert rules_detector("uk").detect(["Я з\u2019їв яблуко.", "Я з'їв яблуко."])[0].gender == "masculine"


def test_a_language_without_rules_names_those_that_have_some() -> None:
    with pytest.raises(InputError, match=r"no gender rules for language 'de'.*be \(Belarusian\).*sk \(Slovak\)"):
        rules_detector("de")
