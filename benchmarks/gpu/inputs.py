"""Models and rows for the sections of gpu_check: the demo model if installed, else random weights.

Random weights are scaled so that log-probabilities differ by several units between words, without amplifying rounding errors.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from evaluator.demo import demo_model
from evaluator_serving.engine import Engine
from evaluator_serving.errors import InputError
from evaluator_serving.models.config import quiet
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.tokenizer import load_tokenizer
from evaluator_serving.rows import Row
from tests.tiny_models import WORDS, tiny_tokenizer

LLAMA: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    | {"intermediate_size": 192, "vocab_size": 400},
    "full": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
    | {"intermediate_size": 1536, "vocab_size": 49_152},
}
"""SmolLM2-135M's shape, and one that a CPU is quick with; heads of 64 in both, which every attention of vLLM takes."""
BERT: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 400},
    "full": {"vocab_size": 30_522},
}
GPT2: dict[str, Any] = {"n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1000}


def _save(model: Any, head: Any, kind: str, folder: Path) -> Path:
    with torch.no_grad():
        head.weight.normal_(0, 0.1)
    model.save_pretrained(folder)
    tiny_tokenizer(kind).save_pretrained(folder)
    return folder


def random_llama(folder: Path, *, small: bool) -> Path:
    """A generative model of LLAMA's shapes."""
    torch.manual_seed(0)
    shape = LLAMA["small" if small else "full"]
    config = transformers.LlamaConfig(**shape, initializer_range=0.04, tie_word_embeddings=False, max_position_embeddings=512)
    model = transformers.LlamaForCausalLM(config)
    return _save(model, model.lm_head, "llama", folder)


def random_bert(folder: Path, *, small: bool) -> Path:
    """A masked model of BERT-base's shape."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT["small" if small else "full"], initializer_range=0.04)
    model = transformers.BertForMaskedLM(config)
    return _save(model, model.get_input_embeddings(), "wordpiece", folder)


def random_gpt2(folder: Path) -> Path:
    """A very small generative model."""
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
    return _save(model, model.get_input_embeddings(), "gpt2", folder)


def generative(folder: Path, *, small: bool) -> ModelSource:
    """The demo's SmolLM2-135M where it is installed, else random weights in its shape."""
    quiet()
    if not small:
        try:
            return resolve(str(demo_model()))
        except InputError:
            pass
    return resolve(str(random_llama(folder / "llama", small=small)))


def _texts(count: int) -> list[str]:
    dice = random.Random(0)
    return [" ".join(["I", *dice.choices(WORDS, k=dice.randint(4, 24))]) for _ in range(count)]


def causal_rows(source: ModelSource, count: int) -> list[Row]:
    """Whole sentences: every token after the first is scored, and after the last one two more words."""
    tokenizer = load_tokenizer(source)
    rows = []
    for text in _texts(count):
        ids = tuple(tokenizer(text)["input_ids"])
        inside = [(place, ids[place + 1]) for place in range(len(ids) - 1)]
        rows.append(Row("causal", ids, (*inside, (len(ids) - 1, ids[1]), (len(ids) - 1, ids[-1]))))
    return list(dict.fromkeys(rows))


def masked_rows(source: ModelSource, count: int) -> list[Row]:
    """Sentences with one word masked, asked for that word and for another one of the sentence."""
    tokenizer = load_tokenizer(source)
    dice = random.Random(1)
    rows = []
    for text in _texts(count):
        ids = list(tokenizer(text)["input_ids"])
        place = dice.randrange(1, len(ids) - 1)
        wanted, other, ids[place] = ids[place], ids[1], tokenizer.mask_token_id
        rows.append(Row("masked", tuple(ids), tuple((place, token) for token in dict.fromkeys((wanted, other)))))
    return list(dict.fromkeys(rows))


def plain(source: ModelSource, rows: Sequence[Row]) -> np.ndarray:
    """Log-probabilities of all lookups, row by row: transformers in float64 on the CPU, one row at a time, nothing shared."""
    causal = rows[0].head == "causal"
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    model = kind.from_pretrained(source.path, dtype=torch.float64).eval()
    found = []
    with torch.inference_mode():
        for row in rows:
            logits = model(torch.tensor([row.ids])).logits[0]
            found += [float(torch.log_softmax(logits[place], 0)[token]) for place, token in row.lookups]
    return np.array(found)


def difference(answers: Sequence[np.ndarray], expected: np.ndarray) -> float:
    """Largest |Δ log P|; infinite where the numbers of answers differ."""
    found = np.concatenate(answers)
    return float(np.abs(found - expected).max()) if found.shape == expected.shape else float("inf")


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def tokens_a_second(engine: Engine, rows: Sequence[Row]) -> float:
    """Forward tokens a second over all rows, after a tenth of them has warmed the engine up."""
    engine.score(rows[: max(1, len(rows) // 10)])
    synchronize()
    begun = time.perf_counter()
    engine.score(rows)
    synchronize()
    return sum(row.length for row in rows) / (time.perf_counter() - begun)
