"""Slovene: *delal sem / delala sem*, *sem ponosen / ponosna*, *biti močen / močna*, *rad / rada*, *sam / sama*, *delal bi*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, endings, words
from evaluator.gender.rules.strategies import AuxiliaryParticiple, FixedPairs, PredicateAdjective, Tail

PARTICIPLES = Forms(
    masculine=endings("-l"),
    feminine=endings("-la"),
    lookalikes=words(
        "alkohol alkohola avtomobil avtomobila bordel cel cela daril darila del dela dobrodošla festival festivala",
        "gala gola hvala idol idola jekla kanal kopel kosila krila kul kvartil lokal material misel model navodil",
        "navodila oblačil oblačila ogledal ogledala pohval pol posel potencial profil sila skal skala smisla sol",
        "stol stola svetla tal titul tla vesla vozila zamisel čela šola števila žal žival",
    ),
)

ADJECTIVES = Forms(
    masculine=endings("-en -an -čen -ljiv -jši -ast -nut"),
    feminine=endings("-ena -ana -ljiva -asta -tna -vna -čna -dna -rna -šna -žna -pna -mna -sna -zna -bna -jna -lna -jša"),
    masculine_words=words(
        "aktivni bogat bolan boljši dober dolg drag dražji edini glup grd grob hiter hraber jak kriv lačen len lep",
        "mišičast mlad moder močan močnejši najboljši najhujši najmlajši najslabši nezrel nižji nor nov občutljiv",
        "oster ožji pameten plah poln prav predan prestar prešibek prvi rad reven slab slaboten star strog takšen",
        "težak težji tih trd trden trmast vajen vesel večji vešč visok višji zadnji zdrav zrel čist čvrst šibek",
        "živ",
    ),
    feminine_words=words(
        "bogata boljša dobra draga edina glupa grda groba hitra hrabra jaka kriva lena lepa mlada modra močna",
        "močnejša najboljša najhujša najmlajša najslabša nezrela nora nova ostra plaha polna prestara prešibka",
        "prva revna slaba stara stroga takšna težka tiha trda trmasta vajena vesela večja vešča visoka zadnja",
        "zdrava zrela čista čvrsta šibka živa",
    ),
    lookalikes=words(
        "cena dan dana dren drugi eden en ena hrana imena jan jesen kamen kolena ljubezen mena mnenja moji namen",
        "naši njegov njen njena noben nobena ocean odstotek organ oseba plan plana pomen prava problem ramena rana",
        "roman scena semena stan stena stran strana svoji teden tedna tisti tujci tvoji vaši vojna zjutraj član",
        "člana žena",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "v na za s z od do o po pri k h proti brez pod pred nad med zaradi okoli ob iz čez skozi glede kljub",
        # pronouns and clitics
        "se mi me ti te mu jo joj jim jih ga ji je si sebe sebi svojega svoje svojih svojim svojo svojem tega temu vsem",
        "tem to vam jaz sem bi nad njim njo njimi nič",
        # adverbs and particles
        "že danes zdaj tukaj tu tam vedno nikoli pogosto še samo zelo bolj kot kadar doma zunaj tudi pa le kdaj dovolj",
        "tako toliko",
    ),
    endings=endings("-ti -či -om -em -ami -imi -ega -emu -ih -im"),
    joins=words(", a ali ampak in pa ter"),
)

CLAUSE_WORDS = words(
    "a ali ampak da dokler in kadar kaj kako kar kdo kdor ker ki kjer ko kot medtem niti odkar saj ter toda vendar",
    "če čeprav",
)

OTHERS = words(
    "fant kdo kdor kdorkoli mati moj moja mož nekdo nihče nič nobeden on ona otrok oče partner prijatelj ti",
)

RULES = LanguageRules(
    code="sl",
    name="Slovene",
    clause_words=CLAUSE_WORDS,
    strategies=(
        AuxiliaryParticiple("auxiliary-participle", words("sem nisem bom"), PARTICIPLES, bridges=words("in niti ali")),
        PredicateAdjective("predicate-adjective", words("sem nisem bom"), ADJECTIVES, FOLLOWERS),
        PredicateAdjective("infinitive-copula", words("biti"), ADJECTIVES, FOLLOWERS),
        FixedPairs(
            "fixed-pair",
            Forms(masculine_words=words("rad nerad sam"), feminine_words=words("rada nerada sama")),
            others=words("ima nima imaš nimaš imajo nimajo"),
        ),
        AuxiliaryParticiple("conditional", words("bi"), PARTICIPLES, others=OTHERS),
    ),
)
