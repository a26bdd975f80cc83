"""Masked models for benchmarks: random weights in published shapes, the published procedure, and requests.

BERT-base and XLM-R-base have a WordPiece vocabulary trained on the sentences (real vocabularies split more words).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.requests import Masked


def make_shape(case: str, folder: Path, texts: Sequence[str]) -> Path:
    """Save a random-weight masked model in the full shape of BERT-base or XLM-R-base, with a tokenizer for these texts.

    Its weights are float32, and exact in bfloat16.
    """
    from tokenizers import BertWordPieceTokenizer

    raw = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    raw.train_from_iterator([*texts, "He said: She said:"], vocab_size=30522, min_frequency=1, show_progress=False)
    raw.save(str(folder / "tokenizer.json"))
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **{f"{role}_token": token for role, token in roles.items()}
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    if case == "bert-base":
        model: Any = transformers.BertForMaskedLM(transformers.BertConfig())
    else:
        model = transformers.XLMRobertaForMaskedLM(
            transformers.XLMRobertaConfig(
                vocab_size=250_002,
                max_position_embeddings=514,
                type_vocab_size=1,
                layer_norm_eps=1e-5,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    model.save_pretrained(folder)
    return folder


def published_masked(source: ModelSource) -> Callable[[Sequence[str]], list[float]]:
    """The published procedure: batch size 1, one forward pass per word, softmax everywhere. Returns natural logarithms."""
    tokenizer = load_tokenizer(source)
    model = transformers.AutoModelForMaskedLM.from_pretrained(source.path, dtype=torch.float32).eval()

    def one(own: str, other: str) -> float:
        inputs = tokenizer(own, return_tensors="pt")
        ids = inputs["input_ids"][0].tolist()
        masked = [tokenizer.mask_token_id if a != b else a for a, b in zip(ids, tokenizer(other)["input_ids"], strict=True)]
        inputs["input_ids"] = torch.tensor([masked])
        with torch.no_grad():
            probabilities = model(**inputs).logits.softmax(dim=-1)[0]
        at = [i for i, token in enumerate(masked) if token != ids[i]]
        return float(torch.log(probabilities[at, torch.tensor(ids)[at]]).mean())

    def score(texts: Sequence[str]) -> list[float]:
        pairs = [(f'He said: "{text}"', f'She said: "{text}"') for text in texts]
        return [one(he, she) - one(she, he) for he, she in pairs]

    return score


def requests(texts: Sequence[str]) -> list[Masked]:
    """Requests for GEST's first template."""
    return [Masked(("", f' said: "{text}"'), (("He",), ("She",))) for text in texts]
