"""Czech: *dělal jsem / dělala jsem*, *jsem hrdý / hrdá*, *chci být silný / silná*, *rád / ráda*, *sám / sama*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, endings, words
from evaluator.gender.rules.strategies import AuxiliaryParticiple, FixedPairs, PredicateAdjective, Tail

PARTICIPLES = Forms(
    masculine=endings("-l"),
    feminine=endings("-la"),
    lookalikes=words(
        "alkohol anděl asexuál bisexuál bordel chvála cibula cíl debil detail divadel divadla docela doručovatel",
        "díl festival fotbal gala gril hala heterosexuál hotel jídla kanál kapitál koala kostel křídla mail",
        "majitel manžel manžela materiál medicinbal mobil model mysl myslitel místa mýdla nepřítel nositel nával",
        "obyvatel odmala personál pečovatel podíl posel poskytovatel postel potenciál pravidel pravidla prdla",
        "profesionál profil prostěradel prostěradla prádla pádla přítel přítela příval seriál skandál skála smysl",
        "spisovatel stola styl stůl sval světel světla síla sůl titul tunel týl těla učitel vesla volejbal vozidla",
        "zavazadla zcela znalec zrcadla úkol čela čísel čísla ředitel škola španěl živitel",
    ),
)

# Soft adjectives (*lepší*, *vedoucí*) are the same in both genders and show nothing.
ADJECTIVES = Forms(
    masculine=endings("-ý -en -án -čen -žen"),
    feminine=endings("-á -ena -ána"),
    masculine_words=words("dotknut dotčen hotov jist laskav neschopen rozhodnut schopen unesen vědom zdráv živ"),
    feminine_words=words("dotknuta dotčena hotova jista laskava neschopna rozhodnuta schopna vědoma zdráva živa"),
    lookalikes=words(
        "blázen celý cena den dá dělá jaká jaký jen jména já každá každý kmen kolena která který kámen len minulý",
        "možná má mívá nemá nějaká nějaký orgán plán polena prý pán písmena ramena román semena sen stává svá ten",
        "týden umírá ven veškerý změna znamená člen žena žádná žádný",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "v ve na za s se z ze k ke ku o od do po pro při před nad pod mezi bez kvůli podle okolo vůči proti přes díky",
        "během ohledně mimo u",
        # pronouns and clitics
        "si mi mě mně tě ti mu ho jej její jí ji jim ich nich nás vás vám nám tím tom toho tomu to já sám sama jsem by",
        "sobě sebe vámi všem svých svým své svému svou",
        # adverbs and particles
        "už i také ještě tam tu tady teď vždy vždycky někdy stále doma dost velmi příliš dnes nikdy často právě opravdu",
        "venku potom hned víc více méně tolik tak moc",
    ),
    endings=endings("-t -ci -cky -ky -ně -em -mi -ím -ým -ou -ých -ému -ého"),
    joins=words(", a ale ani i nebo či"),
)

RULES = LanguageRules(
    code="cs",
    name="Czech",
    clause_words=words(
        "a aby ale ani ačkoli i jak jako jestli kdo kdyby když která které který nebo neboť než pokud protože",
        "takže však či že",
    ),
    strategies=(
        AuxiliaryParticiple(
            "auxiliary-participle", words("jsem nejsem bych abych kdybych"), PARTICIPLES, bridges=words("a i ani nebo")
        ),
        AuxiliaryParticiple("pronoun-participle", words("já"), PARTICIPLES),
        PredicateAdjective("predicate-adjective", words("jsem nejsem budu nebudu cítím necítím"), ADJECTIVES, FOLLOWERS),
        PredicateAdjective("infinitive-copula", words("být"), ADJECTIVES, FOLLOWERS),
        FixedPairs(
            "fixed-pair",
            Forms(masculine_words=words("rád nerad sám"), feminine_words=words("ráda nerada sama")),
            others=words("má nemá máš nemáš mají nemají"),
        ),
    ),
)
