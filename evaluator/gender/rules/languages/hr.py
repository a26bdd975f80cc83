"""Croatian: *radio sam / radila sam*, *ponosan / ponosna sam*, *biti jak / jaka*, *sama*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, endings, words
from evaluator.gender.rules.strategies import AuxiliaryParticiple, FixedPairs, PredicateAdjective, Tail
from evaluator.gender.text import serbian_to_latin

# The masculine -l became -o after a vowel: *radio*, *mogao*, *htio*.
PARTICIPLES = Forms(
    masculine=endings("-ao -eo -io -uo"),
    feminine=endings("-la"),
    masculine_words=words("došo mogo"),
    lookalikes=words(
        "alkohola automobila bela bijela budala cela ceo cijela cio cipela dela deo dijela dio djela gala gola",
        "hvala idola kao kila koala kola misao modela nao odela odijela ogledala orao pakao pola posao posla",
        "potencijala protokola radijo rituala sila skala smisao smisla stabala stereo stola strijela svetla svila",
        "svjetla tela tijela ugao vesla vila zao čela šala škola žao žila",
    ),
)

ADJECTIVES = Forms(
    masculine=endings("-an -en -ljiv -nut -iji -ši -ivi"),
    feminine=endings(
        "-ana -ena -ljiva -nuta -tna -vna -čna -dna -rna -šna -žna -pna -mna -sna -zna -bna -jna -lna -ršta -enija -anija "
        "-dnija -tnija -rnija -vnija -snija"
    ),
    masculine_words=words(
        "bistar bodar bogat bolji brz dobar drag dubok dug glup grub hrabar iskren jak jači jedini kratak kriv",
        "krut lak lenj lep lijen lijep ljut loš lud mek miran mišićav mlad mlađi mudar najbolji najgori najjači",
        "najmlađi najveći nezreo nov ozbiljan oštar pametan plah posljednji poznat prav preslab prvi sklon slab",
        "snažan spor star strog takav težak tih tvrd tvrdoglav veseo veći vešt visok vješt zadnji zdrav zreo čist",
        "čvrst žilav živ žustar",
    ),
    feminine_words=words(
        "bistra bogata bolja brza dobra draga duboka glupa gruba hrabra jaka jača jedina kriva kruta laka lenja",
        "lepa lijena lijepa ljuta loša luda meka mišićava mlada mlađa mudra najbolja najgora najjača najlepša",
        "najljepša najmlađa najveća nezrela nova oštra plaha poznata prelepa prelijepa preslaba prva ružna sklona",
        "slaba spora stara stroga takva teška tiha tvrda tvrdoglava vesela veća vešta vješta zdrava zrela čista",
        "čvrsta žilava živa",
    ),
    lookalikes=words(
        "cena cijena dan dana drugi ekran godina hrana imena italijan jedan jedna klan koljena kompaniji lica",
        "liniji ljubavna mana minut minuta naša naši nijedan nijedna njen njena ocean organ ovan pjesma plan plana",
        "plemena povijesna primjena promjena put ramena rana restoran roman romana san scena smjena sna stan stana",
        "strana tjedan tjedna tuđa van vaša vaši vojna vrana vremena zamjena član člana članova španjolan žena",
    ),
    lookalike_endings=endings("-ciji -ziji -siji"),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "u na za s sa od do o po pri prema bez kod pred iza nad pod među kroz zbog radi protiv oko uz iz",
        # pronouns and clitics
        "se mi ti mu joj im ih ga ju je ja si sebe sebi svog svoje svojih svojim svojoj svojem svom tome toga svega",
        "svih svima vama ovome nego njemu njoj njima njom njim meni sam",
        # adverbs and particles
        "li već danas sada sad tada ovdje tu tamo uvijek nikad nikada često još samo jako vrlo baš vani ovde uvek",
        "veoma kad kada što koliko toliko",
    ),
    endings=endings("-ti -ći -om -em -ima -ama -og -ih -im -oj"),
    joins=words(", a ali i ili pa te"),
)

CLAUSE_WORDS = words(
    "a ako ali budući da dok gde gdje i iako ili jer kad kada kako koja koje koji mada nego no pa pošto već čim",
    "što",
)

RULES = LanguageRules(
    code="hr",
    name="Croatian",
    clause_words=CLAUSE_WORDS,
    spelling=(serbian_to_latin,),
    strategies=(
        AuxiliaryParticiple("auxiliary-participle", words("sam nisam bih budem"), PARTICIPLES, bridges=words("i ni niti ili")),
        PredicateAdjective("predicate-adjective", words("sam nisam jesam budem"), ADJECTIVES, FOLLOWERS),
        PredicateAdjective(
            "infinitive-copula", words("biti"), ADJECTIVES, FOLLOWERS, others=words("će ćeš ćete je on ona može")
        ),
        # *sam* is nearly always the auxiliary.
        FixedPairs("fixed-pair", Forms(feminine_words=words("sama"))),
    ),
)
