"""A model's tokenizer for the encoders: ids with character offsets, and special tokens by role."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evaluator_serving.chats import Turn, spoken
from evaluator_serving.encoding import template
from evaluator_serving.encoding.spelling import Spelling
from evaluator_serving.errors import InputError, ModelError, first_line
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import SENTINEL
from evaluator_serving.rows import Coverage

_WORDS = 200_000
"""Words whose tokens the library remembers. By default it keeps 10,000, fewer than EuroGEST has in its languages."""

START_TEXT = "<|endoftext|>"
"""What StereoSet's released code puts in front of a text, whatever the model's tokenizer makes of it."""

_BOUNDARY = "▁"
"""SentencePiece's sign for a space: the beginning of a word's first piece, or a piece of its own before it."""

_MARK = re.compile(r"<[|｜][^\s<>]+[|｜]>")
_BRACKETED = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]")
"""What control tokens look like; a bracketed one may be text."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenized text.

    Attributes:
        ids: token ids.
        offsets: half-open character range of each token; tokens of one character's bytes share its range.
        special: whether the tokenizer's template added the token.
        type_ids: token type ids, None for a model without them.
        words: index of the pre-tokenizer's word of each token, None for template tokens.
    """

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    type_ids: tuple[int, ...] | None
    words: tuple[int | None, ...]

    def span(self, start: int, end: int) -> tuple[int, ...]:
        """Positions of the tokens that overlap the characters [start, end), without template tokens."""
        return tuple([i for i, (a, b) in enumerate(self.offsets) if a < end and start < b and a < b])


class TextTokenizer:
    """A fast tokenizer without truncation and padding, with the encoders' operations on special tokens.

    The names of control tokens in a text (`[MASK]`, `</s>`, `<|im_end|>`) are treated as plain characters. Control tokens are
    only inserted by the program: by id, or through the methods that say so.
    """

    def __init__(self, source: ModelSource, tokenizer: Any) -> None:
        self._source = source
        self._tokenizer = tokenizer
        # The library object itself: the transformers wrapper around it takes most of the time for short texts.
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        if resize := getattr(self._backend.model, "_resize_cache", None):
            resize(_WORDS)
        self._ahead: dict[bool, dict[str, Any]] = {False: {}, True: {}}
        _declare_control(tokenizer)
        self._types = (getattr(source.config, "type_vocab_size", 0) or 0) > 1
        self.config = source.config
        self.unk_id = _unknown_id(self._backend)
        self._bytes = _byte_ids(self._backend)
        self._odd = self._bytes | {i for i in (self.unk_id,) if i is not None}
        self._is_part = functools.cache(_part_of_a_letter(self._backend))
        self._control = _control_ids(tokenizer) - self._odd
        self._boundary = self._backend.token_to_id(_BOUNDARY)
        self.spelling = Spelling(self._backend)
        self.front = self._leading_specials()
        self._template_control: dict[tuple[str, ...], tuple[int, ...]] = {}
        # A chat with several candidates for its answer is written once.
        self._switches = False
        self._chat_text = functools.lru_cache(maxsize=4)(self._written)
        self._chat = self._chat_opening() if source.chat_template == "user" else None

    @property
    def mask_id(self) -> int:
        """The mask token's id. Raises InputError if there is none."""
        return self._required(self._tokenizer.mask_token_id, "mask")

    @property
    def mask_text(self) -> str:
        """The mask token's text. Raises InputError if there is none."""
        self._required(self._tokenizer.mask_token_id, "mask")
        return str(self._tokenizer.mask_token)

    @property
    def sentinel_id(self) -> int:
        """The id of T5's first span sentinel. Raises InputError if there is none."""
        ids = self.control_ids(SENTINEL)
        return self._required(ids[0] if len(ids) == 1 and ids[0] != self.unk_id else None, f"sentinel ({SENTINEL})")

    @property
    def start_id(self) -> int:
        """The token before a whole text: BOS, or the end-of-text token for a model without BOS, such as GPT-2."""
        bos = self._tokenizer.bos_token_id
        return self._required(bos if bos is not None else self._tokenizer.eos_token_id, "BOS or end-of-text")

    @property
    def start_text_id(self) -> int:
        """The first token of START_TEXT: the token of that name, else a special token in front or a piece of text."""
        return (*self.front, *self.control_ids(START_TEXT))[0]

    @property
    def end_id(self) -> int:
        """The end-of-text token's id. Raises InputError if there is none."""
        return self._required(self._tokenizer.eos_token_id, "end-of-text")

    def tokenize_ahead(self, alone: Iterable[str], whole: Iterable[str]) -> None:
        """Tokenize texts together that are asked for next: by `ids` and `prompt_ids` (`alone`), and by `tokens` (`whole`).

        A text that the tokenizer fails at is left to whoever asks for it.
        """
        self._ahead = {False: {}, True: {}}
        self._backend.encode_special_tokens = True
        asked = ((self._backend.encode_batch_fast, alone, False), (self._backend.encode_batch, whole, True))
        for encode, texts, special in asked if self._chat is None else asked[1:]:
            distinct = list(dict.fromkeys(texts))
            with contextlib.suppress(Exception):  # the library has no types of its own
                self._ahead[special] = dict(zip(distinct, encode(distinct, add_special_tokens=special), strict=True))

    def tokens(self, text: str, second: str | None = None) -> Tokens:
        """Tokenize a text or a pair of texts, with the model's special tokens. Raises InputError as `ids` does."""
        encoding = self._encode(text, second, special=True)
        types = tuple(encoding.type_ids) if self._types else None
        ids, special = tuple(encoding.ids), tuple(map(bool, encoding.special_tokens_mask))
        if sum(map(self._control.__contains__, ids)) > sum(special):
            self._refuse_control([i for i, own in zip(ids, special, strict=True) if not own])
        return Tokens(ids, tuple(encoding.offsets), special, types, tuple(encoding.word_ids))

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without the model's special tokens.

        Raises InputError if the tokenizer produces a control token nevertheless (one with control tokens among its pieces).
        """
        ids = tuple(self._encode(text, special=False).ids)
        self._refuse_control(ids)
        return ids

    def control_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text of the program, in which control tokens are recognised. Never used for texts of data sets."""
        return tuple(self._encode(text, special=False, control=True).ids)

    def marked(self, text: str, mark: int, *, count: int = 1, special: bool = True) -> tuple[int, ...]:
        """Ids of a text in which the program inserted the control token `mark` `count` times, with special tokens if `special`.

        Raises InputError if the text contains another control token, or this one more often.
        """
        encoding = self._encode(text, special=special, control=True)
        own = [i for i, s in zip(encoding.ids, encoding.special_tokens_mask, strict=True) if not s]
        for _ in range(min(count, own.count(mark))):
            own.remove(mark)
        self._refuse_control(own)
        return tuple(encoding.ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text after the chat template's opening, if any, without the model's special tokens."""
        if self._chat is None:
            return self.ids(text)
        opening = self._chat
        ids = self.control_ids(opening.prefix + text)
        if self._held(ids) == opening.control:
            return ids
        if opening.front is None:  # this tokenizer's pieces depend on what stands before, even on a control token
            raise self._control_error(self._held(ids)[len(opening.control) :])
        return opening.front + self.ids(opening.rest + text)

    def spoken(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """The turns with the model's system prompt in front, if any. Raises InputError if the turns have their own."""
        try:
            return spoken(turns, self._source.system)
        except ValueError as error:
            raise InputError(str(error)) from error

    def chat_ids(self, turns: Sequence[Turn], answer: str = "") -> tuple[int, ...]:
        """Ids of a chat rendered by the chat template, up to the assistant's turn, which begins with `answer`.

        The template determines special tokens in front. Raises InputError if there is no template, or it cannot render these
        turns or omits one, and for a turn that contains a control token.
        """
        written = self._chat_text(tuple(turns))
        for turn in turns:
            if turn.content.strip() not in written:
                raise InputError(f"its chat template omits the {turn.role} turn")
        ids = self.control_ids(written + answer)
        roles = tuple(turn.role for turn in turns)
        if roles not in self._template_control:
            plain = self._chat_text(tuple(Turn(role, "a") for role in roles))
            self._template_control[roles] = self._held(self.control_ids(plain))
        if (held := self._held(ids)) != self._template_control[roles]:
            strange = [i for i in held if held.count(i) > self._template_control[roles].count(i)]
            raise self._control_error(strange or held)
        return ids

    def _written(self, turns: tuple[Turn, ...]) -> str:
        """A chat rendered by the template, up to the assistant's turn."""
        thinking = self._source.thinking
        try:
            written = self._rendered(turns, thinking, parts=self._wants_parts)
        except Exception as error:
            roles = " and ".join(dict.fromkeys(f"a {turn.role} turn" for turn in turns))
            raise InputError(f"its tokenizer has no chat template for {roles} ({first_line(error)})") from error
        if thinking and not self._switches:
            other = ""
            with contextlib.suppress(Exception):  # a template that refuses another choice knows this one
                other = self._rendered(turns, template.without_switch(thinking), parts=self._wants_parts)
            if other == written:
                raise InputError(f"its chat template does not support --thinking {thinking}: remove the option")
            self._switches = True
        return written

    def _rendered(self, turns: tuple[Turn, ...], thinking: str, *, parts: bool) -> str:
        """A chat rendered by the template, with contents as text or, if `parts`, as lists with one text."""
        contents = [[{"type": "text", "text": turn.content}] if parts else turn.content for turn in turns]
        told = [{"role": turn.role, "content": content} for turn, content in zip(turns, contents, strict=True)]
        how = template.values(self._source, thinking)
        if self._dated is not None:
            how["chat_template"] = self._dated
        return str(self._tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True, **how))

    @functools.cached_property
    def _dated(self) -> str | None:
        """The chat template with the run's date; None if the model's own has none."""
        if self._source.day is None:
            return None
        plain = self._tokenizer.get_chat_template()
        dated = template.dated(plain, self._source.day)
        return dated if dated != plain else None

    @functools.cached_property
    def _wants_parts(self) -> bool:
        """Whether the template renders only lists of parts: those of some multimodal models omit plain text without an
        error."""
        probe = "a plain text"

        def writes(*, parts: bool) -> bool:
            try:
                return probe in self._rendered((Turn("user", probe),), self._source.thinking, parts=parts)
            except Exception:  # whatever a template raises: told when a chat is written
                return False

        return not writes(parts=False) and writes(parts=True)

    @property
    def opening_length(self) -> int:
        """Number of tokens before every prompt: special tokens and the chat template's opening."""
        return len(self.front) + (self._chat.length if self._chat else 0)

    def slot(self, tokens: Tokens, text: str, start: int, end: int) -> tuple[int, ...]:
        """Positions of the tokens of the word text[start:end], including the boundary sign for the space before it.

        Raises InputError if they are not the word: none, unknown ones, or others (a normalizer that removes characters can
        shift offsets).
        """
        places = tokens.span(start, end)
        spelled = self._spelled(tokens, places, text, start, end)
        if not spelled or not text.isprintable():  # a word that stands there twice may be spelled in the wrong place
            anew = self._anew(tokens, text, start, end)
            if anew is not None:
                tokens, start, places = anew
            elif not spelled:
                word, ids = text[start:end], [tokens.ids[i] for i in places]
                self.check_word(word, ids)
                shown = " ".join(self._backend.id_to_token(i) for i in ids)
                raise InputError(
                    f"the tokens of {word!r} can't be located: the tokenizer's offsets give {shown!r}; clean the text"
                )
        sign = places[0] - 1
        if sign >= 0 and tokens.ids[sign] == self._boundary and tokens.offsets[sign] == (start - 1, start):
            joined = self._backend.id_to_token(tokens.ids[places[0]]).startswith(_BOUNDARY)
            return places if joined else (sign, *places)
        return places

    def _anew(self, tokens: Tokens, text: str, start: int, end: int) -> tuple[Tokens, int, tuple[int, ...]] | None:
        """The same tokens with offsets into the normalized text, and the word's start and tokens there.

        These offsets are correct, since nothing is left to remove. None if the tokenizer treats the normalized text
        differently.
        """
        before, word, behind = (self.spelling.normalized(part) for part in (text[:start], text[start:end], text[end:]))
        again = self.tokens(before + word + behind)
        first, last = len(before), len(before) + len(word)
        places = again.span(first, last)
        right = again.ids == tokens.ids and self._spelled(again, places, before + word + behind, first, last)
        return (again, first, places) if right else None

    def _spelled(self, tokens: Tokens, places: tuple[int, ...], text: str, start: int, end: int) -> bool:
        """Whether the tokens at some positions spell the word, as far as they are known."""
        ids = tuple([tokens.ids[i] for i in places])
        if not ids or self.unk_id in ids:
            return False
        around = text[min(start, tokens.offsets[places[0]][0]) : max(end, tokens.offsets[places[-1]][1])]
        return self.spelling.spells(text[start:end], around, ids)

    def puts_space_in_front(self) -> bool:
        """Whether the tokenizer adds a space before a text's first word, as most SentencePiece tokenizers do."""
        return self.ids("a")[-1:] == self.ids("a a")[-1:]

    def check_word(self, word: str, tokens: Sequence[int]) -> None:
        """Raise InputError for a word without tokens, or with an unknown token."""
        if not tokens:
            raise InputError(f"{word!r} yields no token")
        if self.unk_id in tokens:
            raise InputError(f"{word!r} contains characters that the tokenizer maps to the unknown token")

    def check_continuation(self, context: str, candidate: str, tokens: tuple[int, ...]) -> None:
        """Raise InputError if a candidate's tokens do not spell it, or contain an unknown token."""
        if len(candidate.split()) == 1:
            self.check_word(candidate, tokens)
        if self.unk_id not in tokens and not self.spelling.spells(candidate, context + candidate, tokens):
            spelled = " ".join(self._backend.id_to_token(i) for i in tokens)
            raise InputError(f"{candidate!r} has only the tokens {spelled!r}: an unknown character before it includes the rest")

    def coverage(self, ids: Sequence[int]) -> Coverage:
        """Numbers of a text's tokens (without control tokens) that are unknown, or single bytes of an unknown character."""
        own = len(ids) if self._control.isdisjoint(ids) else len(ids) - sum(map(self._control.__contains__, ids))
        parts = sum(map(self._is_part, ids))
        if self._odd.isdisjoint(ids):
            return Coverage(own, byte_pieces=parts)
        return Coverage(own, sum(i == self.unk_id for i in ids), parts + sum(i in self._bytes for i in ids))

    def _encode(self, text: str, second: str | None = None, *, special: bool, control: bool = False) -> Any:
        if second is None and not control and (made := self._ahead[special].get(text)) is not None:
            return made
        # Set each time: transformers' wrapper sets it too, whenever it is called.
        self._backend.encode_special_tokens = not control
        try:
            return self._backend.encode(text, second, add_special_tokens=special)
        except Exception as error:  # the library has no types of its own: half a surrogate pair, no piece for a character
            raise InputError(f"the tokenizer fails at the text ({first_line(error)})") from error

    def _held(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(i for i in ids if i in self._control)

    def _refuse_control(self, ids: Sequence[int]) -> None:
        if not self._control.isdisjoint(ids):
            raise self._control_error(self._held(ids))

    def _control_error(self, ids: Sequence[int]) -> InputError:
        names = ", ".join(repr(self._backend.id_to_token(i)) for i in dict.fromkeys(ids))
        return InputError(f"the text contains {names}, which this tokenizer always treats as a control token: remove it")

    def _required(self, token_id: int | None, role: str) -> int:
        if token_id is None:
            raise InputError(f"model {self._source.spec}: its tokenizer has no {role} token")
        return token_id

    def _leading_specials(self) -> tuple[int, ...]:
        """Ids that the tokenizer's template adds before a text (BOS, CLS), often none."""
        probe = self.tokens("a")
        return probe.ids[: probe.special.index(False)] if False in probe.special else ()

    def _chat_opening(self) -> "_Opening":
        """An empty user turn and the opening of the assistant's turn, after which a text is the assistant's.

        The model's system prompt, if any, precedes both.
        """
        spec, system = self._source.spec, self._source.system
        turns = spoken((Turn("user", ""),), system)
        try:
            prefix = self._chat_text(turns)
        except InputError as error:
            raise ModelError(f"model {spec}: {error}: remove --chat-template and --system, or this model") from error
        encoding = self._encode(prefix, special=False, control=True)
        if system is not None:
            plain = self._chat_text((Turn("system", "a"), *turns[1:]))
            if system.strip() not in prefix or self._held(self.control_ids(plain)) != self._held(encoding.ids):
                raise ModelError(f"model {spec}: its chat template changes the system prompt: use another prompt")
        places = [at for at, i in enumerate(encoding.ids) if i in self._control]
        cut = places[-1] + 1 if places else 0
        front, rest = tuple(encoding.ids[:cut]), prefix[encoding.offsets[cut - 1][1] if places else 0 :]
        probe = '"I am'
        apart = front + self.ids(rest + probe) == self.control_ids(prefix + probe)
        return _Opening(prefix, self._held(encoding.ids), front if apart else None, rest, len(encoding.ids))


@dataclass(frozen=True, slots=True)
class _Opening:
    """The chat template's text before the assistant's words.

    Attributes:
        prefix: the text.
        control: ids of its control tokens.
        front: its ids up to the last control token, None if the rest cannot be tokenized separately.
        rest: its text after that.
        length: its number of tokens.
    """

    prefix: str
    control: tuple[int, ...]
    front: tuple[int, ...] | None
    rest: str
    length: int


def _unknown_id(backend: Any) -> int | None:
    """The id of the unknown token, None for a tokenizer that encodes every byte.

    Determined by a trial, because the declared one may differ (GPT-2's is its end-of-text token, which is never produced).
    """
    try:
        tokens = backend.model.tokenize("\U0010ffff")  # no character, now or ever
    except Exception:  # a Unigram model without an unknown piece
        return None
    return int(tokens[0].id) if len(tokens) == 1 else None


def _part_of_a_letter(backend: Any) -> Callable[[int], bool]:
    """Whether a byte-level tokenizer's token contains an incomplete character; other tokenizers have no such tokens."""
    state = b"" if backend.decoder is None else backend.decoder.__getstate__()
    if b'"ByteLevel"' not in state:
        return lambda _: False
    written = _byte_letters()

    def is_part(token: int) -> bool:
        held = [written.get(letter) for letter in backend.id_to_token(token) or ""]
        try:
            bytes(byte for byte in held if byte is not None).decode("utf8")
        except UnicodeDecodeError:
            return None not in held  # an added token is written as it is
        return False

    return is_part


def _byte_letters() -> dict[str, int]:
    """GPT-2's table of bytes as characters: printable bytes as themselves, the others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _byte_ids(backend: Any) -> frozenset[int]:
    """Ids of the pieces for single bytes of an unknown character (`<0x00>` to `<0xFF>`), if the tokenizer has them."""
    ids = [backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    return frozenset() if None in ids else frozenset(i for i in ids if i is not None)


def _declare_control(tokenizer: Any) -> None:
    """Make special tokens of control tokens that a tokenizer adds as plain ones, as fine-tuned models do for turns.

    They look like `<|im_start|>`, or are in brackets in the chat template. Other plain ones are text (runs of spaces, HTML).
    """
    backend, turns = tokenizer.backend_tokenizer, str(getattr(tokenizer, "chat_template", None) or "")
    plain = [token for token in backend.get_added_tokens_decoder().values() if not token.special]
    control = [t for t in plain if _MARK.fullmatch(t.content) or (_BRACKETED.fullmatch(t.content) and t.content in turns)]
    for token in control:
        token.special = True
    backend.add_special_tokens(control)


def _control_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the control tokens.

    Tokens of a single character count as text (some models pad with `!`). mT5's sentinels are not declared.
    """
    backend = tokenizer.backend_tokenizer
    added = [i for i, token in backend.get_added_tokens_decoder().items() if token.special and len(token.content) > 1]
    roles = [getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "cls", "sep", "mask")]
    spans = [backend.token_to_id(f"{sign}<extra_id_{n}>") for sign in ("", "▁") for n in range(100)]
    return frozenset(i for i in (*added, *roles, *spans) if i is not None)


def check_different(candidates: Sequence[Sequence[str]], tokens: Sequence[tuple[Any, ...]]) -> None:
    """Raise InputError if different candidates (each some words) have equal tokens."""
    seen: dict[tuple[Any, ...], Sequence[str]] = {}
    for words, ids in zip(candidates, tokens, strict=True):
        other = seen.setdefault(ids, words)
        if other is not words and [w.split() for w in other] != [w.split() for w in words]:
            first, second = (" … ".join(word.strip() for word in each) for each in (other, words))
            raise InputError(f"{first!r} and {second!r} have the same tokens, so this model cannot distinguish them")


def check_text(text: str, what: str) -> None:
    """Raise InputError for an empty or blank text."""
    if not text.strip():
        raise InputError(f"empty {what}")
