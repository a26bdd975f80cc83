"""Word filling on small random models, every score against a plain implementation of method.md §3 written here.

The plain code scores one input at a time in float64, finds keywords by the characters between their brackets, and matches
tokens by its own recursion over longest common blocks.
"""

import math
import random
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from evaluator.datasets import winobias
from evaluator.datasets.crows import PAIRS
from evaluator.datasets.word_filling import QUADRUPLES
from evaluator.demo import demo_model
from evaluator.store.answers import answers_frame
from evaluator.tasks.winobias import WinoBias
from evaluator.tasks.word_filling import WordFilling
from evaluator.vocabulary import MeasureOptions, Samples
from evaluator_serving.answers import assemble
from evaluator_serving.chunks import chunks
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.opening import open_engine

FRAMES = [
    # (text, original group, control group, (keywords)): a keyword of several pieces, one that touches punctuation, one that
    # stands in the sentence twice
    ("The {0} was <{k}> at home.", ("girl",), ("boy",), ("unfathomable", "kind")),
    ('"<{k}>", {0} said.', ("she",), ("he",), ("Kind", "Rude")),
    ("A kind {0} is <{k}> to a {0}.", ("girl",), ("boy",), ("kind", "rude")),
    # shared tokens in an unusual order: what stands first in one sentence stands last in the other
    ("The {0} saw the {1}, <{k}>.", ("man", "woman"), ("woman", "man"), ("happy", "sad")),
    ("{0} told {1} mother that {2} was <{k}>!", ("She", "her", "she"), ("He", "his", "he"), ("strong", "weak")),
    ("<{k}> {0} swim.", ("girls",), ("boys",), ("Strong", "Weak")),
    ("{0} are <{k}>-looking.", ("Girls",), ("Boys",), ("goodnatured", "illnatured")),
]

QUADS = [
    tuple(text.format(*group, k=keyword) for group in (original, control) for keyword in keywords)
    for text, original, control, keywords in FRAMES
]


def samples() -> Samples:
    rows = [(i, i, *quad) for i, quad in enumerate(QUADS)]
    return Samples(pl.DataFrame(rows, schema=QUADRUPLES, orient="row"), {})


def bare(sentence: str) -> str:
    return sentence.replace("<", "").replace(">", "")


TEXTS = [bare(sentence) for quad in QUADS for sentence in quad if "natured" not in sentence and "unfath" not in sentence]


def wordpiece() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("abcdefghijklmnopqrstuvwxyz")
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, initial_alphabet=letters)
    backend.train_from_iterator([*TEXTS, " ".join(letters), "".join(letters)], trainer)
    ids = [("[CLS]", backend.token_to_id("[CLS]")), ("[SEP]", backend.token_to_id("[SEP]"))]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def byte_level(special: Sequence[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=list(special), initial_alphabet=alphabet)
    backend.train_from_iterator(TEXTS, trainer)
    return backend


def roberta_tokenizer() -> PreTrainedTokenizerFast:
    backend = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.4,
}


def bert(folder: Path) -> None:
    tokenizer = wordpiece()
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **SIZES)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def roberta(folder: Path) -> None:
    tokenizer = roberta_tokenizer()
    torch.manual_seed(1)
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, type_vocab_size=1, pad_token_id=1, **SIZES)
    RobertaForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def gpt2(folder: Path) -> None:
    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level([end]), bos_token=end, eos_token=end)
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=256, n_embd=32, n_layer=2, n_head=2, initializer_range=0.4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def through_the_program(
    task: Any, read: Samples, model: Path, head: str, protocol: Any = "default", dtype: str = "float64"
) -> pl.DataFrame:
    """Scores as a run gives them: render, encode, cut into chunks, score, assemble."""
    rendered = task.render(read, frozenset({head}), protocol)
    source = resolve(str(model))
    encoder = encoder_for(source)
    cut = chunks([encoder.encode(request) for request in rendered.requests.values()], tokens=500)
    rows = [row for chunk in cut for row in chunk.merged.rows]
    engine = open_engine("transformers", source, EngineOptions(dtype=dtype, device="cpu"), rows)
    answers = [answer for chunk in cut for answer in assemble(chunk, engine.score(chunk.merged.rows))]
    engine.close()
    return task.score(rendered.table, answers_frame(answers), protocol)


class Plain:
    """method.md §3 word for word: one text a forward pass, no batches, nothing shared."""

    def __init__(self, folder: Path, kind: Any, dtype: torch.dtype = torch.float64) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = kind.from_pretrained(folder, dtype=dtype).eval()

    def log_probs(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return torch.log_softmax(self.model(torch.tensor([list(ids)])).logits[0], dim=-1)

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]], list[int]]:
        encoding = self.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        return encoding["input_ids"], encoding["offset_mapping"], encoding["special_tokens_mask"]

    def keyword_tokens(self, sentence: str) -> tuple[list[int], list[int]]:
        characters = range(sentence.index("<"), sentence.index(">") - 1)
        ids, offsets, _ = self.encode(bare(sentence))
        return ids, [i for i, (a, b) in enumerate(offsets) if any(a <= c < b for c in characters)]

    def length(self, sentence: str) -> int:
        return len(self.keyword_tokens(sentence)[1])

    def keyword_score(self, sentence: str) -> float:
        ids, places = self.keyword_tokens(sentence)
        masked = [self.tokenizer.mask_token_id if i in places else t for i, t in enumerate(ids)]
        table = self.log_probs(masked)
        return sum(float(table[i, ids[i]]) for i in places) / len(places)

    def cs(self, more: str, less: str) -> float:
        sides = []
        for text in (bare(more), bare(less)):
            ids, _, special = self.encode(text)
            sides.append((ids, [i for i, s in enumerate(special) if not s]))
        (first, own), (second, other) = sides
        total = 0.0
        for a, b in common_blocks([first[i] for i in own], [second[i] for i in other]):
            total += self.one_masked(first, own[a]) - self.one_masked(second, other[b])
        return total

    def one_masked(self, ids: list[int], place: int) -> float:
        masked = list(ids)
        masked[place] = self.tokenizer.mask_token_id
        return float(self.log_probs(masked)[place, ids[place]])


def common_blocks(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of indices of equal tokens: the longest common block (the earliest of several), then left and right of it."""
    best = (0, 0, 0)
    for i in range(len(a)):
        for j in range(len(b)):
            size = 0
            while i + size < len(a) and j + size < len(b) and a[i + size] == b[j + size]:
                size += 1
            if size > best[2]:
                best = (i, j, size)
    i, j, size = best
    if size == 0:
        return []
    right = [(x + i + size, y + j + size) for x, y in common_blocks(a[i + size :], b[j + size :])]
    return [*common_blocks(a[:i], b[:j]), *((i + k, j + k) for k in range(size)), *right]


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize(("make", "kind"), [(bert, BertForMaskedLM), (roberta, RobertaForMaskedLM)])
def test_masked_scores(tmp_path: Path, make: Callable[[Path], None], kind: Any) -> None:
    make(tmp_path)
    it = WordFilling("made", lambda data: samples(), "keyword")
    scores = through_the_program(it, samples(), tmp_path, "masked")
    plain = Plain(tmp_path, kind)
    assert scores.height == 2 * len(QUADS)
    lengths = set()
    for number, quad in enumerate(QUADS):
        L0, L1, L2, L3 = (plain.keyword_score(sentence) for sentence in quad)
        k = [plain.length(sentence) for sentence in quad]
        lengths |= set(k)
        original, control = scores.filter(sample=number).sort("group", descending=True).to_dicts()
        assert (original["group"], control["group"]) == ("original", "control")
        assert (original["ss"], control["ss"]) == (close(L0 - L1), close(L2 - L3))
        assert (original["csk"], control["csk"]) == (close(L0 - L2), close(L1 - L3))
        assert original["f"] == control["f"] == close(L0 - L1 - (L2 - L3))
        assert original["cs"] == close(plain.cs(quad[0], quad[2]))
        assert control["cs"] == close(plain.cs(quad[1], quad[3]))
        assert [original["tokens_stereotype"], original["tokens_anti"]] == k[:2]
        assert [control["tokens_stereotype"], control["tokens_anti"]] == k[2:]
        assert original["kept"] == (k[0] - k[1] == k[2] - k[3])
    assert {1} < lengths  # keywords of one and of several tokens were both there


@pytest.mark.parametrize("protocol", ["default", "published"])
def test_groups_that_differ_by_case_alone(tmp_path: Path, protocol: str) -> None:
    """An uncased model reads one sentence: cs is exactly 0, as the released code has it. A cased one reads two."""
    quad = ("The girl is <kind>.", "The girl is <rude>.", "The Girl is <kind>.", "The Girl is <rude>.")
    read = Samples(pl.DataFrame([(0, 0, *quad)], schema=QUADRUPLES, orient="row"), {})
    it = WordFilling("made", lambda data: read, "keyword")
    for make, kind, equal in ((bert, BertForMaskedLM, True), (roberta, RobertaForMaskedLM, False)):
        make(tmp_path / make.__name__)
        scores = through_the_program(it, read, tmp_path / make.__name__, "masked", protocol)
        plain = Plain(tmp_path / make.__name__, kind)
        expected = [plain.cs(quad[0], quad[2]), plain.cs(quad[1], quad[3])]
        assert (expected == [0.0, 0.0]) == equal
        assert scores["cs"].to_list() == ([0.0, 0.0] if equal else [close(value) for value in expected])
        assert scores["ss"].null_count() == 0


def test_every_distinct_input_is_computed_once(tmp_path: Path) -> None:
    bert(tmp_path)
    first = QUADS[0]
    drawn = [first, (*first[:2], *(sentence.replace("boy", "man") for sentence in first[2:]))]
    rows = [(i, 0, *quad) for i, quad in enumerate(drawn)]
    read = Samples(pl.DataFrame(rows, schema=QUADRUPLES, orient="row"), {})
    it = WordFilling("made", lambda data: read, "keyword")
    rendered = it.render(read, frozenset({"masked"}), "default")
    encoder = encoder_for(resolve(str(tmp_path)))
    asked = [row.ids for key in rendered.table["request"] for row in encoder.encode(rendered.requests[key]).rows]
    cut = chunks([encoder.encode(request) for request in rendered.requests.values()], tokens=10**6)
    done = [row.ids for chunk in cut for row in chunk.merged.rows]
    assert len(done) == len(set(done)) == len(set(asked))
    # s0 and s1 with their keyword masked, and every masked variant of theirs, serve both draws.
    assert len(asked) - len(done) >= 2 + 2 * (len(encoder.text.tokens(bare(first[1])).ids) - 4)


def test_pairs_and_measure(tmp_path: Path) -> None:
    bert(tmp_path)
    rows = [(i, "gender", "stereo", bare(q[0]), bare(q[2])) for i, q in enumerate(QUADS)]
    read = Samples(pl.DataFrame(rows, schema=PAIRS, orient="row"), {})
    it = WordFilling("made", lambda data: read, "pairs")
    scores = through_the_program(it, read, tmp_path, "masked")
    plain = Plain(tmp_path, BertForMaskedLM)
    expected = [plain.cs(q[0], q[2]) for q in QUADS]
    assert scores["score"].to_list() == [close(value) for value in expected]
    tidy = it.measure(scores.with_columns(model=pl.lit("m"), task=pl.lit("made")), MeasureOptions())
    share = tidy.filter(measure="cs_plus", group="all")["value"].item()
    assert share == sum(value > 0 for value in expected) / len(expected)


class PlainCausal(Plain):
    """The extension to generative models: log P of a stretch of characters given all before it.

    As in GPT-2's own use a start token is in front only where there is nothing else.
    """

    def inside(self, text: str, start: int, end: int) -> tuple[list[int], list[int]]:
        """The text's tokens, and which of them hold characters of a stretch or of the space before it."""
        ids, offsets, _ = self.encode(text)
        start = len(text[:start].rstrip())
        return ids, [i for i, (a, b) in enumerate(offsets) if a < end and b > start]

    def stretch(self, text: str, start: int, end: int) -> float:
        ids, places = self.inside(text, start, end)
        front = [] if start else [self.tokenizer.bos_token_id]
        table = self.log_probs([*front, *ids])
        return sum(float(table[i + len(front) - 1, ids[i]]) for i in places)

    def length(self, sentence: str) -> int:
        return len(self.inside(bare(sentence), sentence.index("<"), sentence.index(">") - 1)[1])

    def keyword_score(self, sentence: str) -> float:
        text = bare(sentence)
        return self.stretch(text, sentence.index("<"), len(text))

    def cs(self, more: str, less: str) -> float:
        texts = bare(more), bare(less)
        sides = [spans(text) for text in texts]
        words = [[text[a:b] for a, b in side] for text, side in zip(texts, sides, strict=True)]
        numbers = {word: n for n, word in enumerate({*words[0], *words[1]})}
        blocks = common_blocks([numbers[w] for w in words[0]], [numbers[w] for w in words[1]])
        first_difference = next(i for i, (x, y) in enumerate(zip(*words, strict=False)) if x != y)
        total = 0.0
        for a, b in blocks:
            if not a == b < first_difference:
                total += self.stretch(texts[0], *sides[0][a]) - self.stretch(texts[1], *sides[1][b])
        return total


def spans(text: str) -> list[tuple[int, int]]:
    """Half-open character ranges of the words and punctuation marks of a text."""
    found, start = [], None
    for i, sign in enumerate(text + " "):
        if start is not None and not sign.isalnum():
            found.append((start, i))
            start = None
        if sign.isalnum():
            start = i if start is None else start
        elif not sign.isspace():
            found.append((i, i + 1))
    return found


def test_causal_scores(tmp_path: Path) -> None:
    gpt2(tmp_path)
    it = WordFilling("made", lambda data: samples(), "keyword")
    scores = through_the_program(it, samples(), tmp_path, "causal")
    plain = PlainCausal(tmp_path, GPT2LMHeadModel)
    for number, quad in enumerate(QUADS):
        L0, L1, L2, L3 = (plain.keyword_score(sentence) for sentence in quad)
        original, control = scores.filter(sample=number).sort("group", descending=True).to_dicts()
        assert (original["ss"], control["ss"]) == (close(L0 - L1), close(L2 - L3))
        assert (original["csk"], control["csk"]) == (close(L0 - L2), close(L1 - L3))
        assert (original["cs"], control["cs"]) == (close(plain.cs(quad[0], quad[2])), close(plain.cs(quad[1], quad[3])))
        assert original["tokens_stereotype"] == plain.length(quad[0])


SLOTS = [["The man told the woman that ", " hurt ", "."], ["he", "himself"], ["she", "herself"]]


def winobias_sample() -> Samples:
    row = (0, "type1-dev", 1, "male", "cook", *SLOTS)
    return Samples(pl.DataFrame([row], schema=winobias.FRAME, orient="row"), {})


@pytest.mark.parametrize("protocol", ["default", "published"])
def test_winobias_masks_every_pronoun(tmp_path: Path, protocol: str) -> None:
    bert(tmp_path)
    (score,) = through_the_program(WinoBias(), winobias_sample(), tmp_path, "masked", protocol)["score"]
    plain = Plain(tmp_path, BertForMaskedLM)
    parts = SLOTS[0]
    ids = {}
    for gender, words in zip(("male", "female"), SLOTS[1:], strict=True):
        text = parts[0] + words[0] + parts[1] + words[1] + parts[2]
        ids[gender] = plain.encode(text)
    mask = plain.tokenizer.mask_token_id
    if protocol == "published":
        pairs = list(zip(ids["male"][0], ids["female"][0], strict=False))
        differ = [i for i, (a, b) in enumerate(pairs) if a != b]
        means = []
        for tokens, _, _ in ids.values():
            table = plain.log_probs([mask if i in differ else t for i, t in enumerate(tokens)])
            means.append(sum(float(table[i, tokens[i]]) for i in differ) / len(differ))
        assert score == close(means[0] - means[1])
        return
    sums = []
    for (tokens, offsets, _), words in zip(ids.values(), SLOTS[1:], strict=True):
        first = len(parts[0])
        second = first + len(words[0]) + len(parts[1])
        ranges = [(first, first + len(words[0])), (second, second + len(words[1]))]
        places = [i for i, (a, b) in enumerate(offsets) if any(a < end and b > start for start, end in ranges)]
        total = 0.0
        for done, place in enumerate(places):  # earlier pieces stand, later ones are masks
            table = plain.log_probs([mask if i in places[done:] else t for i, t in enumerate(tokens)])
            total += float(table[place, tokens[place]])
        sums.append(total)
    assert score == close(sums[0] - sums[1])


def test_winobias_generative(tmp_path: Path) -> None:
    gpt2(tmp_path)
    (score,) = through_the_program(WinoBias(), winobias_sample(), tmp_path, "causal")["score"]
    plain = PlainCausal(tmp_path, GPT2LMHeadModel)
    parts = SLOTS[0]
    texts = [parts[0] + words[0] + parts[1] + words[1] + parts[2] for words in SLOTS[1:]]
    male, female = (plain.stretch(text, len(parts[0]), len(text)) for text in texts)
    assert score == close(male - female)


@pytest.mark.slow
def test_smollm2(data_dir: Path) -> None:
    """The generative variants on a real model; ĝ_s of a few WinoBias pairs with its interval."""
    try:
        model = demo_model()
    except InputError as error:
        pytest.skip(str(error))
    plain = PlainCausal(resolve(str(model)).path, AutoModelForCausalLM, torch.float32)
    it = WordFilling("made", lambda data: samples(), "keyword")
    scores = through_the_program(it, samples(), model, "causal", dtype="float32")
    for number, quad in enumerate(QUADS):
        L0, L1, L2, L3 = (plain.keyword_score(sentence) for sentence in quad)
        original, control = scores.filter(sample=number).sort("group", descending=True).to_dicts()
        near = [pytest.approx(value, abs=1e-3) for value in (L0 - L1, L2 - L3, plain.cs(quad[0], quad[2]))]
        assert [original["ss"], control["ss"], original["cs"]] == near
    whole = winobias.read(data_dir / "winobias")
    few = Samples(whole.frame.filter(split="type1-test").head(30), whole.sha256)
    scores = through_the_program(WinoBias(), few, model, "causal", dtype="float32")
    found = WinoBias().measure(scores.with_columns(model=pl.lit("m"), task=pl.lit("winobias")), MeasureOptions())
    logs: dict[str, list[float]] = {"male": [], "female": []}
    for row in few.frame.iter_rows(named=True):
        start = len(row["parts"][0])
        texts = ["".join([row["parts"][0], *(w + p for w, p in zip(row[g], row["parts"][1:], strict=True))]) for g in logs]
        male, female = (plain.stretch(text, start, len(text)) for text in texts)
        logs[row["gender"]].append(male - female)
    mean_m, mean_f = (sum(values) / len(values) for values in logs.values())
    rate = found.filter(measure="g_hat_s").row(0, named=True)
    assert rate["value"] == pytest.approx(math.exp(mean_m - mean_f), rel=1e-3)
    assert rate["low"] < rate["value"] < rate["high"]
    assert (rate["n"], rate["template"]) == (30, "type1-test (extension)")


def test_random_texts_match_like_the_reference() -> None:
    """The matcher written here is difflib's without its junk rule."""
    rng = random.Random(5)
    for _ in range(200):
        a, b = ([rng.randrange(6) for _ in range(rng.randrange(12))] for _ in range(2))
        blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
        assert common_blocks(a, b) == [(m.a + i, m.b + i) for m in blocks for i in range(m.size)]
