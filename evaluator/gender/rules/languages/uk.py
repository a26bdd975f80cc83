"""Ukrainian: *я хотів / хотіла*, *я готовий / готова*, *хотів би я / хотіла б я*, *я один / одна*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, WordKind, endings, words
from evaluator.gender.rules.strategies import InvertedPast, PronounAdjective, PronounPast, SelfPairs, Tail
from evaluator.gender.text import one_script

# Most words in -ів are genitive plurals (*друзів, років*), so its verbs are named by their stems.
PAST = Forms(
    masculine=endings(
        "-ав -яв -їв -ив -ув -юв -вся -міг -ріс -віз -ніс -лік -пік -тік -ліз -мерз -біг -ліг -беріг -досяг -хотів -умів "
        "-ненавидів -зустрів -провів -повів -привів -завів -довів -підвів -відвів -вивів -перевів -звів -розвів -ввів -увів "
        "-призвів -сидів -глядів -володів -терпів -хворів -горів -тремтів -летів -жалів -волів -болів -божеволів -дзвенів "
        "-йшов -радів -смів -кипів -пітнів -шумів -червонів -вспів -бринів -мітив"
    ),
    feminine=endings("-ла -лась -лася"),
    masculine_words=words(
        "виник висох витер витік вмер вмів вріс вів допоміг завмер заліг замерз запер засох звик згас змерз змок",
        "зник обпік охрип помер постиг постриг приліг промок підстриг стер стерся стриг сік тер умер уник",
    ),
    lookalikes=words(
        "актив архів весла весь вплив голова джерела дзеркала журнала зала залив заяв кола колектив крісла лев",
        "масла матеріала мотив наплив негатив ніби позитив посла похвала прав презерватив прилив простирадла прояв",
        "розрив рукав рів села сила скала слав справ спів стола тіла футбола хвала числа школа",
    ),
    lookalike_endings=endings("-ств"),
)

SHORT_ADJECTIVES = Forms(
    masculine_words=words("винен годен жив згоден здоров ладен певен повинен рад"),
    feminine_words=words("винна ладна повинна рада"),
)
FULL_ADJECTIVES = Forms(
    masculine=endings("-ий -ій"),
    feminine=endings(
        "-ена -ана -вна -жна -дна -чна -шна -рна -сна -тна -льна -йна -бна -мна -пна -зна -нна -лива -ива -ська -зька -цька "
        "-іша -уча -юча -ача -яча"
    ),
    feminine_words=words(
        "бідна важка весела висока гарна гола голодна горда гостра готова груба добра доросла друга жива жорстка",
        "зайнята здорова зла зріла красива краща легка лиса люта м'яка мила молода молодша мудра найкраща",
        "наймолодша найстарша нова остання перша потворна права правдива проста розкута слаба смілива сонна стара",
        "старша строга сувора така тверда тиха товста хвора хоробра хороша худа чиста щаслива щира єдина",
    ),
    lookalikes=words(
        "весна вина війна година дитина дружина жодна жінка зміна кожна кожний країна людина моя мій одна рана",
        "самий свій стіна сцена твій третій хвилина ціна який інший їхня",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "в у на за з зі із до о об від по при перед над під між без для про після через серед проти навколо біля ради",
        # pronouns and clitics
        "б би же ж її його їх їм йому мені мене мною тебе тобі вас вам нас нам це цього цьому себе собі собою усім всім",
        "всього усього ній ньому них своїй своєму своїм своїх своїми свого чого тим",
        # adverbs and particles
        "вже ще також завжди ніколи часто сьогодні зараз тепер тоді вдома тут там дуже так не ні тільки ніж чим як інколи",
        "іноді лише все одно знову",
    ),
    endings=endings("-ти -тись -тися -ськи -ого -ому -их -им -ими"),
    joins=words(", а або але й та чи і"),
)

PRONOUN = words("я")
OTHER_SUBJECTS = words("ви вона вони воно він ми ніхто ти хто")
PRESENT = WordKind(
    endings=endings("-у -ю -усь -юсь -уся -юся"),
    lookalikes=words("буду всьому всю йому кому мою нікому одному самому саму свою тому ту цьому цю чому"),
)

RULES = LanguageRules(
    code="uk",
    name="Ukrainian",
    clause_words=words(
        "а або але бо де й коли котрий куди навіщо наче ніби ніж поки та тому тому-що хоч хоча хто чи чого чому що",
        "щоб як яка якби яке який яким якого якому якої яку якщо які і",
    ),
    idioms=("тому що", "так як", "щойно"),
    spelling=(one_script,),
    strategies=(
        PronounPast(
            "pronoun-past",
            PRONOUN,
            PAST,
            OTHER_SUBJECTS,
            WordKind(
                words("в у на за з зі із до о об від по при перед над під без для про після через серед проти біля"),
                endings("-ого -их -іх"),
                lookalikes=words("багато всіх його нього нікого усіх їх"),
            ),
            PRESENT,
            bridges=words("або ані й ні та чи як і"),
        ),
        PronounAdjective(
            "predicate-adjective",
            PRONOUN,
            SHORT_ADJECTIVES,
            FULL_ADJECTIVES,
            FOLLOWERS,
            WordKind(OTHER_SUBJECTS, PRESENT.endings, PRESENT.lookalikes),
        ),
        InvertedPast("inverted-past", PRONOUN, PAST, particles=words("б би же ж не чи і й сам сама вже")),
        SelfPairs(
            "alone",
            Forms(masculine_words=words("один сам"), feminine_words=words("одна сама")),
            WordKind(PRONOUN, PRESENT.endings, PRESENT.lookalikes),
            FOLLOWERS,
            not_after=words("номер"),
        ),
    ),
)
