"""Slovak: *robil som / robila som*, *som hrdý / hrdá*, *musím byť silný / silná*, *rád / rada*, *sám / sama*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, endings, words
from evaluator.gender.rules.strategies import AuxiliaryParticiple, FixedPairs, PredicateAdjective, Tail

PARTICIPLES = Forms(
    masculine=endings("-l"),
    feminine=endings("-la"),
    lookalikes=words(
        "alkohol anjel asexuál bicykel bisexuál cibuľa debil detail diel divadla email festival futbal gala hala",
        "heterosexuál hotel idol kanál kartel kostol mail manžel manžela materiál medicinbal mobil model personál",
        "podiel potenciál profesionál profil prádla pádla rozdiel sedla seriál sexepíl sila skala stola stôl sval",
        "svetla tela titul vesla volejbal zmysel zrkadla úkol čela škola španiel",
    ),
)

# Vowels are shortened after a long syllable: krásny, krásna beside pekný, pekná.
ADJECTIVES = Forms(
    masculine=endings(
        "-ý -ší -úci -iaci -ívny -ávny -ázny -ózny -álny -árny -átny -áčny -ísny -ížny -úpy -íhly -údry -ásny -ážny "
        "-ýchly -iadny -iamy -áštny -útny -áhly"
    ),
    feminine=endings(
        "-á -šia -úca -iaca -ívna -ávna -ázna -ózna -álna -árna -átna -áčna -ísna -ížna -úpa -íhla -údra -ásna -ážna "
        "-ýchla -iadna -iama -áštna -útna -áhla"
    ),
    lookalikes=words(
        "dá každá každý ktorá ktorý moja moji má nedá nejaká nejaký nemá strážca vedúca vedúci vyzerá väčšina",
        "žalárna žiadna žiadny",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "v vo na za s so z zo k ku o od odo do po pre pri pred nad pod medzi bez kvôli podľa okolo voči proti cez",
        "vďaka počas ohľadom mimo oproti u",
        # pronouns and clitics
        "sa si mi ma ti ťa mu ho jej ju im ich nás vás vám nám tým tom toho tomu to ja sám sama som by sebe seba vami",
        "všetkým svojej svojmu svojich svojimi svojím svojho",
        # adverbs and particles
        "už aj len ešte tam tu teraz vždy niekedy stále doma dosť veľmi príliš dnes nikdy často práve naozaj vonku menej viac",
        "potom hneď",
    ),
    endings=endings("-ť -cky -sky -nejšie -om -mi -ím -ým -ých -ej -ému -ého"),
    joins=words(", a aj ale alebo ani i no či"),
)

RULES = LanguageRules(
    code="sk",
    name="Slovak",
    clause_words=words(
        "a aby aj ak ako ale alebo hoci i keby keď kto ktorá ktoré ktorý kým lebo než no pretože takže však či že",
    ),
    strategies=(
        AuxiliaryParticiple("auxiliary-participle", words("som"), PARTICIPLES, bridges=words("a i ani aj alebo")),
        PredicateAdjective("predicate-adjective", words("som budem nebudem cítim necítim"), ADJECTIVES, FOLLOWERS),
        PredicateAdjective("infinitive-copula", words("byť"), ADJECTIVES, FOLLOWERS),
        FixedPairs(
            "fixed-pair",
            Forms(masculine_words=words("rád nerád sám"), feminine_words=words("rada nerada sama")),
            others=words("má nemá máš nemáš majú nemajú"),
        ),
    ),
)
