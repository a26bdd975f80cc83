"""A model's tokens are its tokenizer.json's, whatever class its configuration names. Right values: `tokenizers` alone."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedConfig
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from evaluator_serving.chats import Turn
from evaluator_serving.encoding.text import TextTokenizer
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.identity import identity
from evaluator_serving.models.file_tokens import with_file_tokens
from evaluator_serving.models.known_tokenizer import KnownTokenizer, tokenizer_of
from evaluator_serving.models.source import FileTokens, ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.requests import Continuation

CORPUS = [
    "The nurse said that she's late, \"I'm sure.\"",
    '"I am late.", he said. "I am late.", she said. "I am not."',
    "He can't have been there in 2024; the man and the woman went to Ürümqi.",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z . , ! ? 0 1 2 3 4 5 6 7 8 9 A B C D E",
] * 3
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")

LABELS = sorted({name for name in TOKENIZER_MAPPING_NAMES.values() if name} | {"PreTrainedTokenizerFast", "BertTokenizerFast"})
TYPES = ("llama", "gpt2", "bert", "roberta", "t5", "xlm-roberta", "deberta-v2", "qwen2", "mistral", "gpt_neox", "bloom")


def _split(pattern: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


def _space(scheme: str, *, split: bool = True) -> Any:
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


PRE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt2 with a space in front": lambda: pre_tokenizers.ByteLevel(add_prefix_space=True),
    "cl100k": lambda: _split(CL100K),
    "qwen": lambda: _split(QWEN),
    "bert": pre_tokenizers.BertPreTokenizer,
    "whitespace": pre_tokenizers.Whitespace,
    "digits": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()]),
    "metaspace": lambda: _space("always"),
    "metaspace first": lambda: _space("first", split=False),
    "metaspace never": lambda: _space("never"),
    "words": lambda: pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _space("always")]),
}
NORMALIZERS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "nfc": normalizers.NFC,
    "nfkc": normalizers.NFKC,
    "lowercase": lambda: normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
    "replace": lambda: normalizers.Replace("she", "he"),
    "legacy llama": lambda: normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    "bert cased": lambda: normalizers.BertNormalizer(lowercase=False),
    "bert uncased": lambda: normalizers.BertNormalizer(lowercase=True),
    "strip": lambda: normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]),
}
POST: dict[str, Callable[[int], Any]] = {
    "none": lambda _: None,
    "byte level": lambda _: processors.ByteLevel(trim_offsets=False),
    "bos": lambda bos: processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", bos)]),
    "end": lambda bos: processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", bos + 1)]),
    "bert": lambda bos: processors.BertProcessing(("</s>", bos + 1), ("<s>", bos)),
    "roberta": lambda bos: processors.RobertaProcessing(("</s>", bos + 1), ("<s>", bos)),
}
SPECIALS = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
ADDED: dict[str, list[AddedToken]] = {
    "none": [],
    "a word of its own": [AddedToken("late", single_word=True, normalized=False)],
    "with spaces": [AddedToken("man", lstrip=True, rstrip=True), AddedToken("  ", normalized=False)],
    "normalized": [AddedToken("SHE", normalized=True), AddedToken("<code>", normalized=True)],
    "control": [AddedToken("<|im_start|>", special=True), AddedToken("<turn>", special=False)],
}
MODELS = ("byte-level", "ignoring merges", "byte fallback", "bpe", "unigram", "wordpiece", "wordlevel")


@functools.cache
def trained(kind: str) -> str:
    """A small tokenizer's JSON: a vocabulary that fits the kind of model."""
    options: dict[str, Any] = {"special_tokens": SPECIALS, "show_progress": False}
    if kind in ("byte-level", "ignoring merges"):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = _split(CL100K), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    elif kind in ("byte fallback", "bpe"):
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
        made.pre_tokenizer, made.decoder = _space("always"), decoders.Metaspace()
        options["special_tokens"] = SPECIALS + [f"<0x{byte:02X}>" for byte in range(256) if kind == "byte fallback"]
        trainer = trainers.BpeTrainer(vocab_size=460, **options)
    elif kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer, made.decoder = _space("always"), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", **options)
    elif kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=160, **options)
    else:
        made = Tokenizer(models.WordLevel(unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(**options)
    made.train_from_iterator(CORPUS, trainer)
    described = json.loads(made.to_str())
    described["model"] |= {"byte fallback": {"byte_fallback": True}, "ignoring merges": {"ignore_merges": True}}.get(kind, {})
    return json.dumps(described)


def described(kind: str, normalizer: str, pre: str, post: str, added: str, *, limited: bool = False) -> Tokenizer:
    """A tokenizer of these parts."""
    made = Tokenizer.from_str(trained(kind))
    parts = {"normalizer": NORMALIZERS[normalizer](), "pre_tokenizer": PRE[pre](), "post_processor": POST[post](1)}
    for name, part in parts.items():
        if part is not None or name == "normalizer":
            setattr(made, name, part)
    made.add_tokens(ADDED[added])
    if limited:
        made.enable_truncation(4)
        made.enable_padding(length=12, pad_id=3, pad_token="<pad>")
    return made


def folder(path: Path, tokenizer: Tokenizer, configured: dict[str, Any], model_type: str = "llama") -> ModelSource:
    """A model's folder, as far as tokenizers are concerned."""
    path.mkdir(exist_ok=True)
    for file in path.iterdir():
        file.unlink()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(configured))
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    return ModelSource("m", path, "sha256:0", frozenset({"causal"}), None, 512)


def read(backend: Tokenizer, text: str, *, special: bool) -> Any:
    """What a tokenizer makes of a text; what it says of one that it can't read."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    try:
        made = backend.encode(text, add_special_tokens=special)
    except Exception as error:
        return str(error)
    return made.ids, made.tokens, made.offsets, made.special_tokens_mask


def agrees(source: ModelSource, texts: list[str]) -> None:
    """The model's tokens of these texts are its tokenizer.json's."""
    right, used = Tokenizer.from_file(str(source.path / "tokenizer.json")), load_tokenizer(source)
    assert used.backend_tokenizer.truncation is None
    assert used.backend_tokenizer.padding is None
    for text in texts:
        for special in (True, False):
            assert read(used.backend_tokenizer, text, special=special) == read(right, text, special=special), text
    whole = read(right, SENTENCE, special=True)
    assert isinstance(whole, str) or used(SENTENCE)["input_ids"] == whole[0]


NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
LETTERS = "abehinorstuwDISTé Ü12.,'\"-  \n字я"
SENTENCE = 'The man said: "she\'s late in  2024", é'


def texts() -> st.SearchStrategy[str]:
    """Letters, and words that mean something to one tokenizer or another."""
    words = st.sampled_from(["she", "SHE", "late", "man", "<s>", "<turn>", "<|im_start|>", "  ", "The ", " woman", "2024"])
    return st.lists(words | st.text(LETTERS, max_size=6), max_size=8).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.tuples(*map(st.sampled_from, (MODELS, list(NORMALIZERS), list(PRE), list(POST), list(ADDED)))),
    label=st.sampled_from([*LABELS, None, "NoSuchTokenizer"]),
    model_type=st.sampled_from(TYPES),
    named=st.sampled_from([NAMED, {}]),
    more=st.sampled_from([{}, {"add_prefix_space": True}, {"add_bos_token": True, "add_eos_token": True}, {"legacy": False}]),
    limited=st.booleans(),
    asked=st.lists(texts(), min_size=1, max_size=4),
)
def test_tokens_are_the_files(
    tmp_path: Path,
    parts: tuple[str, ...],
    label: str | None,
    model_type: str,
    named: dict[str, str],
    more: dict[str, Any],
    limited: bool,
    asked: list[str],
) -> None:
    tokenizer = described(*parts, limited=limited)
    configured = {**named, **more, **({"tokenizer_class": label} if label else {})}
    agrees(folder(tmp_path / "model", tokenizer, configured, model_type), [SENTENCE, *asked])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_tokens_are_the_files_with_every_class(kind: str, tmp_path: Path) -> None:
    usual = {"wordpiece": ["bert"], "wordlevel": ["whitespace"], "byte-level": ["gpt2", "cl100k", "qwen"]}
    first, *others = usual.get(kind, ["cl100k"] if kind == "ignoring merges" else ["metaspace", "metaspace first"])
    for pre, normalizer in [(first, "none"), (first, "lowercase"), *((pre, "none") for pre in others)]:
        tokenizer = described(kind, normalizer, pre, "bos", "with spaces")
        for label in LABELS:
            agrees(folder(tmp_path / "model", tokenizer, {**NAMED, "tokenizer_class": label}), [SENTENCE, " a  b"])


def test_class_defaults_name_special_tokens_of_the_file_only(tmp_path: Path) -> None:
    """What only the class names is taken from it where the file has it; a token that it lacks isn't added to it."""
    tokenizer = described("wordpiece", "none", "bert", "bos", "none")
    used = load_tokenizer(folder(tmp_path / "model", tokenizer, {"tokenizer_class": "RobertaTokenizer"}))
    assert (used.bos_token, used.mask_token, used.sep_token, used.pad_token) == ("<s>", "<mask>", "</s>", "<pad>")
    lacking = Tokenizer.from_str(tokenizer.to_str().replace("<mask>", "[gap]"))
    used = load_tokenizer(folder(tmp_path / "model", lacking, {"tokenizer_class": "RobertaTokenizer"}))
    assert used.mask_token is None
    assert len(used) == lacking.get_vocab_size()


def test_tokens_added_beside_the_file_stay(tmp_path: Path) -> None:
    """A fine-tune's added tokens; how a token of the file is matched is the file's to say."""
    tokenizer = described("byte-level", "none", "cl100k", "none", "with spaces")
    more = {"content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    stale = {**more, "content": "man", "special": False}
    sizes = tokenizer.get_vocab_size()
    added = {str(sizes): more, str(tokenizer.token_to_id("man")): stale}
    for label in ("GPT2Tokenizer", "PreTrainedTokenizerFast"):
        source = folder(tmp_path / "model", tokenizer, {"tokenizer_class": label, "added_tokens_decoder": added})
        assert load_tokenizer(source).convert_tokens_to_ids("<|end|>") == sizes
        written = json.loads(tokenizer.to_str())
        written["added_tokens"].append(stale | {"content": "", "id": 9999})
        (source.path / "tokenizer.json").write_text(json.dumps(written))
        agrees(source, ["the  man  said", "a woman"])


def test_merges_are_not_left_out_at_random(tmp_path: Path) -> None:
    """BPE dropout, which some files keep from training."""
    right = described("byte-level", "none", "cl100k", "none", "none")
    source = folder(tmp_path / "model", right, {"tokenizer_class": "GPT2Tokenizer"})
    written = json.loads(right.to_str())
    written["model"]["dropout"] = 0.5
    (source.path / "tokenizer.json").write_text(json.dumps(written))
    assert [load_tokenizer(source)(SENTENCE)["input_ids"] for _ in range(3)] == [right.encode(SENTENCE).ids] * 3


def test_chats_are_written_with_the_files_tokens(tmp_path: Path) -> None:
    tokenizer = described("byte-level", "none", "cl100k", "none", "control")
    template = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<turn>{% endfor %}<|im_start|>assistant:"
    source = folder(tmp_path / "model", tokenizer, {"tokenizer_class": "GPT2Tokenizer", "chat_template": template})
    text = TextTokenizer(replace(source, config=PreTrainedConfig()), load_tokenizer(source))
    right = tokenizer.encode('<|im_start|>user\n"I\'m late"<turn><|im_start|>assistant:', add_special_tokens=False).ids
    assert list(text.chat_ids((Turn("user", '"I\'m late"'),))) == right


AGREEING = [Continuation('"I am late.",', (" he", " she"))]
"""Texts that a Llama-like file of the older kind and transformers' LlamaTokenizer read alike."""
APART = [Continuation('  "I am late.",', (" he", " she"))]
"""Texts that they don't: what stands behind spaces in front."""


def llama(path: Path) -> ModelSource:
    made = described("byte fallback", "legacy llama", "metaspace", "bos", "none")
    written = json.loads(made.to_str())
    written["pre_tokenizer"] = None
    return folder(path, Tokenizer.from_str(json.dumps(written)), {**NAMED, "tokenizer_class": "LlamaTokenizer"})


def gpt2_labelled(path: Path) -> ModelSource:
    made = described("byte-level", "none", "cl100k", "none", "none")
    return folder(path, made, {**NAMED, "tokenizer_class": "GPT2Tokenizer"})


def test_the_identity_says_so_where_the_class_makes_other_tokens(tmp_path: Path) -> None:
    """Answers to a class's other tokens can't be mixed with those to the file's; right ones keep their fingerprint."""
    alike = folder(tmp_path / "alike", described("byte-level", "none", "gpt2", "none", "none"), {"tokenizer_class": "Parakeet"})
    assert with_file_tokens(alike, APART).tokenizer is None
    source = llama(tmp_path / "llama")
    assert with_file_tokens(source, AGREEING).tokenizer == FileTokens("LlamaTokenizer", False)
    assert with_file_tokens(source, APART).tokenizer == FileTokens("LlamaTokenizer", True)
    labelled = with_file_tokens(gpt2_labelled(tmp_path / "gpt2"), AGREEING)
    assert labelled.tokenizer == FileTokens("GPT2Tokenizer", True)
    merges = described("bpe", "none", "metaspace", "none", "none")
    failing = folder(tmp_path / "failing", merges, {"tokenizer_class": "T5Tokenizer"})
    assert with_file_tokens(failing, AGREEING).tokenizer == FileTokens("T5Tokenizer", None)
    config = PreTrainedConfig()
    details = [
        identity("transformers", replace(one, config=config), EngineOptions()).details.get("tokenizer")
        for one in (alike, with_file_tokens(source, AGREEING), with_file_tokens(failing, AGREEING), labelled)
    ]
    assert details == [None, None, None, "tokenizer.json"]


def test_what_is_remembered_of_a_model_is_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    source = replace(gpt2_labelled(tmp_path / "gpt2"), config=PreTrainedConfig())
    tokenizer_of(source)
    known = tokenizer_of(source)
    assert isinstance(known, KnownTokenizer)
    right = Tokenizer.from_file(str(source.path / "tokenizer.json"))
    assert read(known.backend_tokenizer, SENTENCE, special=True) == read(right, SENTENCE, special=True)


def test_a_tokenizer_json_that_is_none_is_refused_in_a_line(tmp_path: Path) -> None:
    source = gpt2_labelled(tmp_path / "gpt2")
    (source.path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(InputError, match=r"^model m: its tokenizer can't be loaded \(tokenizer\.json: [^\n]*\)$"):
        load_tokenizer(source)


def pieces(path: Path) -> Any:
    """A SentencePiece model in a folder, trained on the corpus."""
    import sentencepiece

    options = {"vocab_size": 90, "hard_vocab_limit": False, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(path / "spiece"), minloglevel=2, **options
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(path / "spiece.model"))


@pytest.mark.parametrize(("lost", "kept"), [(None, True), (False, False), ("no configuration", False)])
def test_a_first_space_that_a_conversion_lost_is_sentencepieces(lost: Any, kept: bool, tmp_path: Path) -> None:
    """With `"add_prefix_space": null` transformers 4 wrote files without it; any other file means what it says."""
    model = pieces(tmp_path)
    tokenizer = Tokenizer(models.Unigram([(model.id_to_piece(i), model.get_score(i)) for i in range(len(model))], unk_id=2))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = _space("never")
    named = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "extra_ids": 0}
    source = folder(tmp_path / "model", tokenizer, {**named, "add_prefix_space": lost}, "t5")
    (tmp_path / "spiece.model").rename(source.path / "spiece.model")
    if lost == "no configuration":
        (source.path / "tokenizer_config.json").unlink()
    text = "The nurse said that"
    right = model.encode(text) if kept else tokenizer.encode(text).ids
    assert model.encode(text) != tokenizer.encode(text).ids
    assert load_tokenizer(source).backend_tokenizer.encode(text, add_special_tokens=False).ids == right
