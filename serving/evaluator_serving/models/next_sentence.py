"""Next-sentence classifiers made of generative models: GPT-2-like and T5/mT5 (Öztürk et al., 2023; method.md §2).

A trained classifier is a folder like any other model's, with an architecture of our own in config.json and a section
`next_sentence` (see `NextSentence`). This module is what the rest of serving needs to know of it without torch.
"""

from dataclasses import asdict, dataclass
from typing import Any

CAUSAL = "CausalForNextSentence"
SEQ2SEQ = "Seq2SeqForNextSentence"
ARCHITECTURES = (CAUSAL, SEQ2SEQ)

IS_NEXT = 1
"""Label of a pair whose second text follows the first (BERT's own head has it the other way round)."""


@dataclass(frozen=True, slots=True)
class NextSentence:
    """How a trained classifier reads a pair; config.json's section `next_sentence`.

    Attributes:
        prefix: put in front of the first text.
        labels: token ids of the labels "0" and "1" (encoder-decoder models only).
        forced: the decoder's ids, start token first, after which the label is read (encoder-decoder models only); GREEDY as
            the last one stands for the token that the model itself finds most probable there.
    """

    prefix: str = ""
    labels: tuple[int, int] = (0, 0)
    forced: tuple[int, ...] = ()

    def as_config(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def next_sentence(config: Any) -> NextSentence | None:
    """The section of a config, None if the model isn't one of ours."""
    if not set(getattr(config, "architectures", None) or ()) & set(ARCHITECTURES):
        return None
    section = config.next_sentence
    return NextSentence(section["prefix"], tuple(section["labels"]), tuple(section["forced"]))
