"""Polish: *robiłem / robiłam*, *gdybym robił / robiła*, *jestem dumny / dumna*, *być silny / silna*, *sam / sama*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, endings, words
from evaluator.gender.rules.strategies import AuxiliaryParticiple, FixedPairs, PredicateAdjective, Tail

PERSONAL = Forms(
    masculine=endings("-łem -łbym"),
    feminine=endings("-łam -łabym"),
    masculine_words=words("powinienbym powinienem winienem"),
    feminine_words=words("powinnabym powinnam winnam"),
    lookalikes=words(
        "aniołem artykułem ciałem czołem dołem działam działem dziełem hasłem kapitałem kołem kościołem krzesłem",
        "kłam materiałem mydłem oddziałem odwołam pomysłem powołam przemysłem sensem skrzydłem stołem szkłem",
        "szpitałem tytułem tyłem tłem udziałem umysłem wołam wołem wywołam zawołam zdołam zespołem zmysłem złam",
        "światłem źródłem żywiołem",
    ),
)

# Bare participles: with *żebym, gdybym, abym, bym* and the future *będę*.
PARTICIPLES = Forms(
    masculine=endings("-ł"),
    feminine=endings("-ła"),
    lookalikes=words(
        "anioł artykuł chwała ciała czoła dział działa dzieła dół kapitał koła kościół krzesła materiał mgła mydła",
        "pomysł przemysł przyjaciół pudeł pudła sił siła skała skrzydła stół szkoła tytuł tył udział umysł wiosła",
        "wokoła wół zespoła zespół zmysł zła światła źródła",
    ),
)

ADJECTIVES = Forms(
    masculine=endings("-ny -wy -dy -ty -ry -szy -ący -ły -hy"),
    feminine=endings("-na -wa -da -ta -ra -sza -ąca -ła -ha"),
    masculine_words=words(
        "bliski ciekaw daleki drugi długi gotów gruby głupi jaki krótki lekki ludzki mężny niski odpowiedni",
        "ostatni pewien przyjacielski przyjaźny szeroki szorstki szybki słaby słodki taki towarzyski wdzięczny",
        "wielki wysoki zdrów średni świadom żywy",
    ),
    feminine_words=words(
        "bliska daleka druga długa gruba głupia jaka krótka lekka ludzka niska odpowiednia ostatnia przyjacielska",
        "szeroka szorstka szybka słaba słodka taka tania towarzyska wielka wysoka średnia świadoma",
    ),
    lookalikes=words(
        "aby auta bestsellery budowy cały ceny chwały chyba da drużyny dwa dyrygenta dziedziny dziewczyna",
        "dziewczyny dzięki firmy gdy gdyby godziny góra góry głowa głowy inny jest kara karty kary każda każdy",
        "kiedy klasa klasy kobieta kobiety konta kontakty która który kultura kultury kłopoty lata lidera mama",
        "mamy matury metody miary miasta minuty mody na natura natury nigdy oferty ofiara osoba para poczty pora",
        "porady pory praca prawa prawda prawdy problemy przygody rany rodzina rodziny rozmowa rozmowy sama sceny",
        "siła siły skóra skóry sprawa sprawy strata strategii strona strony struktury sytuacji szkoła szkoły słowa",
        "ta talenty testy ustawy wa wady wtedy wygody zabawy zasady zawsze zdrowia zmiany zwierzęta ściany święta",
        "żadna żadny żeby żona żony",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "w we na za z ze do od o po pod przed nad między bez dla przez przy ku wobec wśród u pomimo mimo poza podczas dzięki",
        # pronouns and clitics
        "się mi mnie mną ci cię mu go jej ją im ich nim niej nich nam was wam tym tego temu to ja sobie siebie swoich swojej",
        "swojego swojemu swoim swoją swoje wszystkim",
        # adverbs and particles
        "już dziś dzisiaj teraz tu tam zawsze nigdy często jeszcze tylko bardzo niż sam sama razem tak by całkiem gdzie",
        "jestem będę",
    ),
    endings=endings("-ć -ąc -łem -łam -owo -lnie -cznie -wnie -em -ami -ą -ego -emu -ych -ich -ym -im -ymi"),
    joins=words(", a ale ani czy i lub oraz"),
)

CLAUSE_WORDS = words(
    "a aby albo ale ani bo chociaż choć co czy dopóki gdy gdyby i jak jako jeśli jeżeli kiedy kto która które",
    "który których lecz lub niż oraz ponieważ póki więc zanim że żeby",
)

RULES = LanguageRules(
    code="pl",
    name="Polish",
    clause_words=CLAUSE_WORDS,
    strategies=(
        FixedPairs("personal-ending", PERSONAL),
        AuxiliaryParticiple(
            "moving-ending",
            words("żebym gdybym abym bym ażebym jakbym obym czybym żem kiedym iżbym byłbym"),
            PARTICIPLES,
        ),
        AuxiliaryParticiple("future-participle", words("będę"), PARTICIPLES),
        PredicateAdjective("predicate-adjective", words("jestem będę bywam czuję"), ADJECTIVES, FOLLOWERS),
        PredicateAdjective("infinitive-copula", words("być"), ADJECTIVES, FOLLOWERS),
        FixedPairs(
            "fixed-pair",
            Forms(masculine_words=words("sam"), feminine_words=words("sama")),
            not_after=words("ten ta taki taka na tak"),
        ),
    ),
)
