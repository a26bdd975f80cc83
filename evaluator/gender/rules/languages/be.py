"""Belarusian: *я хацеў / хацела*, *я гатовы / гатовая*, *хацеў бы я / хацела б я*, *я адзін / адна*."""

from evaluator.gender.rules.detector import LanguageRules
from evaluator.gender.rules.forms import Forms, WordKind, endings, words
from evaluator.gender.rules.strategies import InvertedPast, PronounAdjective, PronounPast, SelfPairs, Tail
from evaluator.gender.text import one_script

PAST = Forms(
    masculine=endings("-ў -ўся -мог -нёс -вёз -лёк -пёк -рос -лез -мёрз -лёг -бег -бярог -сцярог -дасяг"),
    feminine=endings("-ла -лася -лась"),
    masculine_words=words(
        "абпёк ахрып бег вывез вылез вынес вырас высах выцер вёз замёр запёр звык знік лез лёг мог нёс пагас",
        "падстрыг памёр прамок пёк рос сек стрыг сцёр узнік уцёк цёр",
    ),
    lookalikes=words(
        "вясла гнеў зноў крэсла леў любоў люстэрка матыў пахвала прамоў прыліў прэзерватыў размоў разрыў рукаў",
        "скала сяла сіла уплыў цела школа шоў ў ўплыў",
    ),
    # Genitive plurals (*сродкаў, рэчаў*); a verb that ends so too is left out: precision before recall.
    lookalike_endings=endings(
        "-стваў -нняў -ццяў -ссяў -цыяў -ентаў -ектаў -актаў -эктаў -антаў -істаў -сткаў -яраў -ераў -эраў -аткаў "
        "-яткаў -ікаў -чыкаў -нкаў -лкаў -цкаў -ткаў -дзяў -жаў -чаў -боў -доў -коў -лоў -моў -ноў -поў -роў -соў -тоў "
        "-хоў -цоў -чоў"
    ),
)

SHORT_ADJECTIVES = Forms(
    masculine_words=words("вінен гатоў жывы здароў павінен рад"),
    feminine_words=words("вінна павінна рада"),
)
FULL_ADJECTIVES = Forms(
    masculine=endings("-ны -вы -лы -ры -ты -шы -ды -кі -гі -хі -чы -жы -бы"),
    feminine=endings("-ая -яя"),
    masculine_words=words("злы"),
    lookalikes=words(
        "бы гадзіны грошы два дзверы заўсёды звычкі кнігі кожная кожны мой ногі прыроды разы рукі самая самы свой",
        "твой толькі хвіліны якая які",
    ),
)

FOLLOWERS = Tail(
    words=words(
        # prepositions
        "у ў ва на за з са да аб ад па пры перад над пад між паміж без для пра пасля праз сярод супраць каля дзеля",
        # pronouns and clitics
        "б бы ж жа яе яго іх ім яму мне мяне мной цябе табе вас вам нас нам гэта гэтага гэтаму сябе сабе сабой усім ўсім",
        "усяго ўсяго ёй ім іх сваёй свайму сваім сваіх сваімі свайго чаго тым",
        # adverbs and particles
        "ўжо ужо яшчэ таксама заўсёды ніколі часта сёння зараз цяпер тады дома тут там вельмі так не ні толькі чым як",
        "часам усё ўсё зноў",
    ),
    endings=endings("-ць -ці -цца"),
    joins=words(", а або але ды ці і"),
)

PRONOUN = words("я")
OTHER_SUBJECTS = words("вы мы ніхто ты хто яна яно яны ён")
PRESENT = WordKind(
    endings=endings("-у -ю -уся -юся"),
    lookalikes=words("аднаму буду гэтаму гэту каму маю нікому самому сваю таму тую усю усяму чаму яму ўсю ўсяму"),
)

RULES = LanguageRules(
    code="be",
    name="Belarusian",
    clause_words=words(
        "а або але бо быццам дзе ды й каб калі куды навошта нібы пакуль таму таму-што хаця хоць хто ці чаго чаму",
        "чым што як якая якога якое якой якому якую які якім якія і",
    ),
    idioms=("таму што", "так як"),
    spelling=(one_script,),
    strategies=(
        PronounPast(
            "pronoun-past",
            PRONOUN,
            PAST,
            OTHER_SUBJECTS,
            WordKind(
                words("у ў ва на за з са да аб ад па пры перад над пад без для пра пасля праз сярод супраць каля"),
                endings("-ага -яга -ых -іх -ога"),
                lookalikes=words("нікога усіх яго яе іх ўсіх"),
            ),
            PRESENT,
            bridges=words("або ды й ні ці як і"),
        ),
        PronounAdjective(
            "predicate-adjective",
            PRONOUN,
            SHORT_ADJECTIVES,
            FULL_ADJECTIVES,
            FOLLOWERS,
            WordKind(OTHER_SUBJECTS, PRESENT.endings, PRESENT.lookalikes),
        ),
        InvertedPast("inverted-past", PRONOUN, PAST, particles=words("б бы жа ж не ці і й сам сама ўжо ужо")),
        SelfPairs(
            "alone",
            Forms(masculine_words=words("адзін сам"), feminine_words=words("адна сама")),
            WordKind(PRONOUN, PRESENT.endings, PRESENT.lookalikes),
            FOLLOWERS,
            not_after=words("нумар"),
        ),
    ),
)
