"""Scoring requests, the interface between tasks (evaluator) and engines (serving).

A request is text, not token ids, so it is the same for every model. Its id is a hash of its content: equal requests of several
templates, tasks or repeated sentences are scored once.

Every request's answer (see `answers.Answer`) has, for each candidate in order, its token ids and one natural-log
probability per token; the answer to a chat has replies.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from evaluator_serving.chats import Chat, Turn

MaskedMethod = Literal["sequential", "joint", "single", "written", "positional", "one_token", "words", "unmasked"]
ContinuationMethod = Literal["conditional", "together", "to_end", "last_token", "start_text", "whole", "difference"]

SENTINEL = "<extra_id_0>"
"""Marks the first span that T5 and mT5 fill in. Only this package writes it into requests."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A text with n slots, filled by each candidate in turn; for masked language models and for T5's span filling.

    `parts` are the n + 1 stretches of text around the slots. A candidate is a tuple of n fillers, one per slot. The text
    is tokenized with the fillers in it; the fillers' tokens are found from character offsets. `method` is one of:

    - `sequential`: for a candidate of k tokens (over all slots) k inputs; in the j-th the first j - 1 tokens are filled in, the
      others are masks; token j is read. Their sum is a proper log-probability of the candidate.
    - `joint`: one input in which all k tokens are masks; all are read from it.
    - `single`: k inputs; in the j-th the first j - 1 tokens are filled in and one mask replaces the rest of the word; token j
      is read (StereoSet). If there are several slots, all have the same filler and the first slot is read.
      An encoder-decoder model gets the text with its first sentinel as the mask, and token j is read from the decoder
      after its start token and that sentinel.
    - `written`: `single` as StereoSet's released code for five languages does it. The word is tokenized alone; the j-th text
      is written out, with the first j - 1 tokens' text and the mask's own text in every slot, and tokenized anew. Text
      next to the mask thereby becomes a separate word, and a tokenizer may add a boundary piece where there is no space. The
      decoder of an encoder-decoder model begins with the model's most probable token instead of the sentinel.
    - `positional`: exactly two candidates, whose token sequences are compared position by position; every position that
      differs is masked at once and read (GEST's released code; with unequal token counts this masks the shifted tail).
    - `one_token`: exactly two candidates; if their texts have equally many tokens and differ in one of them, it is masked and
      read. Otherwise both candidates have no tokens, and nothing is computed (the filter of GEST's released Slavic code).
    - `words`: every token of the whole text (without special tokens), masked together with the later tokens of its word,
      so that a word's first piece cannot be guessed from the rest (Kauf and Ivanova's pseudo-log-likelihood, 2023). Words are
      those of the tokenizer's pre-tokenization.
    - `unmasked`: every token of the whole text (without special tokens), all read from the unmasked text
      (Kaneko and Bollegala's all unmasked likelihood, 2022).
    """

    parts: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    method: MaskedMethod = "sequential"


@dataclass(frozen=True, slots=True)
class Continuation:
    """A context and candidates that follow it verbatim (leading spaces included); for generative models.

    The answer has each candidate's tokens with log P(token | BOS, context, earlier tokens). An empty context scores a
    whole text. `encoder` is the encoder's text of an encoder-decoder model (its span sentinel included); the decoder then
    starts with its start token, `context` and the candidate. `method`:

    - `conditional`: every token of the candidate; a token that straddles the boundary belongs to the candidate.
    - `together`: `conditional`, but all candidates are read from the same token on: the first one that differs from the
      context's tokens in any candidate. So the difference of two candidates' sums is that of their whole texts, for any
      tokenization.
    - `to_end`: `conditional` for encoder-decoder models, with the end token as the last of each candidate's tokens.
    - `last_token`: only the last token id of the candidate tokenized alone, read after the context (GEST's released code).
    - `start_text`: the tokens of the text as the model's tokenizer gives them, special tokens included. The first one is
      read after the first token that the tokenizer makes of the *text* `<|endoftext|>`, the others without a token before
      the text's tokens (StereoSet's released code; empty context only).
    - `whole`: the tokens of the text as the model's tokenizer gives them, special tokens included, without the first one, which
      nothing predicts (EuroGEST's code of 2025; empty context only).
    - `difference`: exactly two candidates, tokenized as for `whole`, each read from the first token on in which they differ;
      if one is a prefix of the other, from the shorter one's last token on; if their first tokens differ, the last token
      only (EuroGEST's code of 2026, its errors included; empty context only).
    """

    context: str
    candidates: tuple[str, ...]
    method: ContinuationMethod = "conditional"
    encoder: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts; the answer is one candidate with one number: log P(`second` follows `first`)."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class SharedTokens:
    """Two texts that share most of their tokens, each shared token masked one at a time (word filling's cs, CrowS-Pairs).

    Shared tokens are the longest matching blocks over the two token id sequences, without special tokens. The answer has
    two candidates, one per text, with the shared tokens' ids and log-probabilities in the order of each text's blocks (the
    i-th of one corresponds to the i-th of the other).
    """

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A chat that ends with the user's turn, and candidates that the assistant's answer may begin with, verbatim.

    The answer has each candidate's tokens with log P(token | the chat in the model's template, earlier tokens); for generative
    models with a chat template. A token that straddles the boundary belongs to the candidate.
    """

    turns: tuple[Turn, ...]
    candidates: tuple[str, ...]


def span_filling(before: str, candidates: tuple[str, ...], *, ended: bool = False) -> Continuation:
    """Candidates that an encoder-decoder model fills into a span after a text; with `ended`, up to the end token.

    As T5 was trained, the encoder reads the text and the first sentinel, the decoder the sentinel and the candidate.
    """
    method: ContinuationMethod = "to_end" if ended else "conditional"
    return Continuation(SENTINEL, candidates, method, encoder=f"{before} {SENTINEL}")


Request = Masked | Continuation | Pair | SharedTokens | Choice | Chat

KINDS: dict[type, str] = {
    Masked: "masked",
    Continuation: "continuation",
    Pair: "pair",
    SharedTokens: "shared",
    Choice: "choice",
    Chat: "chat",
}


def kind(request: Request) -> str:
    """The request's kind, one of KINDS (a folder name in the store)."""
    return KINDS[type(request)]


def request_id(request: Request) -> str:
    """The request's identity: 32 hexadecimal digits, a BLAKE2b hash of its kind and content."""
    content = _JSON.encode([kind(request), request])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__match_args__}


_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_fields)
"""Writes requests, with their turns, as `asdict` would have them: that copies every text, and there is an id for each sentence
of each model."""
