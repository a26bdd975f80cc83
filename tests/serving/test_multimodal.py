"""Models of text and images or audio, scored on text alone: the numbers are those of their own class.

Right values: the class's own forward pass in float64 with plain attention, one text at a time and nothing but its ids.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from multimodal_models import CLASSES, tiny_multimodal

from evaluator_serving.chats import Chat, Turn
from evaluator_serving.encoding import encoder_for
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.opening import open_engine
from evaluator_serving.rows import Row
from tests.float64_loop import row_answers

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "qwen3_5", "llava", "mistral3", "smolvlm", "paligemma", "voxtral", "audioflamingo3")

_BEGINNING = (0, *range(40, 52))
ROWS = [
    *(Row("causal", (*_BEGINNING, *more), ((12, 90), (12 + len(more), 91))) for more in ((), (60,), (61, 62, 63))),
    *(Row("causal", (0, *range(70, 70 + n)), ((n, 95), (n - 1, 96))) for n in (3, 9, 30)),
]


def own_class(folder: Path, dtype: torch.dtype = torch.float64) -> Any:
    """A checkpoint in the class that its configuration names."""
    config = transformers.AutoConfig.from_pretrained(folder)
    factory = getattr(transformers, config.architectures[0])
    return factory.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def right(folder: Path, rows: Sequence[Row]) -> np.ndarray:
    try:
        return np.concatenate(row_answers(own_class(folder), rows))
    except RuntimeError:  # grouped products of experts have no float64
        return np.concatenate(row_answers(own_class(folder, torch.float32), rows))


@pytest.mark.parametrize("kind", FAMILIES)
def test_text_alone_is_scored_as_the_models_own_class_does(kind: str, tmp_path: Path) -> None:
    source = resolve(str(tiny_multimodal(kind, tmp_path)))
    assert source.heads == {"causal"}
    engine = open_engine("transformers", source, EngineOptions(), ROWS)
    found = np.concatenate(engine.score(ROWS))
    np.testing.assert_allclose(found, right(tmp_path, ROWS), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "mistral3"])
def test_answers_are_those_of_each_prompt_alone_and_scores_stay_as_they_were(kind: str, tmp_path: Path) -> None:
    source = resolve(str(tiny_multimodal(kind, tmp_path)))
    prompts = [(0, *range(70, 70 + n)) for n in (3, 9, 9, 14)] + [(*_BEGINNING, more) for more in (60, 61, 62)]
    turns = (Turn("user", "a"),)
    asked = [Row("chat", ids, (), chat=Chat(turns, max_tokens=12 + n % 2)) for n, ids in enumerate(prompts)]
    engine = open_engine("transformers", source, EngineOptions(dtype="float64"), [*ROWS, *asked])
    before = engine.score(ROWS)
    replies = engine.generate(asked)
    own = own_class(tmp_path)
    for row, (reply,) in zip(asked, replies, strict=True):
        ids = list(row.ids)
        while len(ids) < len(row.ids) + row.chat.max_tokens:  # type: ignore[union-attr]
            with torch.inference_mode():
                ids.append(int(own(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 0:
                ids.pop()
                break
        assert reply.tokens == tuple(ids[len(row.ids) :])
    for a, b in zip(before, engine.score(ROWS), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("kosmos-2", r"without an image or audio\) in float32 \(You have to specify either `pixel_values`"),
        ("pix2struct", "encodes an image or audio before it writes text"),
    ],
)
def test_a_model_that_needs_an_image_says_so(kind: str, reason: str, tmp_path: Path) -> None:
    tiny_multimodal(kind, tmp_path)
    with pytest.raises(InputError, match=reason):
        open_engine("transformers", resolve(str(tmp_path)), EngineOptions(), ROWS)


def test_a_model_that_transcribes_speech_says_so(tmp_path: Path) -> None:
    tiny_multimodal("llava", tmp_path)
    transformers.WhisperConfig(architectures=["WhisperForConditionalGeneration"]).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="transcribes speech, so it can't be scored on text alone"):
        resolve(str(tmp_path))


LISTS = (
    "{% for m in messages %}{{ m.role + ': ' }}{% for part in m.content | selectattr('type', 'equalto', 'text') %}"
    "{{ part.text }}{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""As LLaVA 1.5's: of a plain text it writes nothing."""


@pytest.mark.parametrize("file", ["chat_template.json", "processor_config.json", "chat_template.jinja"])
def test_chats_are_written_as_a_processors_template_does(file: str, tmp_path: Path) -> None:
    source = resolve(str(tiny_multimodal("llava", tmp_path)))
    (tmp_path / file).write_text(LISTS if file.endswith("jinja") else json.dumps({"chat_template": LISTS}), "utf8")
    encoder = encoder_for(source)
    (row,) = encoder.encode(Chat((Turn("system", "be kind"), Turn("user", "who is it?")))).rows
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokens.decode(row.ids) == "system: be kind\nuser: who is it?\nassistant: "


@pytest.mark.slow
def test_every_type_that_can_be_built_gives_its_own_numbers_or_is_refused(tmp_path: Path) -> None:
    equal: list[str] = []
    refused: dict[str, str] = {}
    for kind in CLASSES:
        try:
            tiny_multimodal(kind, tmp_path / kind)
        except Exception:  # whatever a configuration raises that is made of small sizes alone
            continue
        try:
            expected = right(tmp_path / kind, ROWS)
        except Exception:  # it needs an image, or its class can't compute with these sizes
            expected = None
        try:
            engine = open_engine("transformers", resolve(str(tmp_path / kind)), EngineOptions(), ROWS)
        except InputError as error:
            refused[kind] = str(error)
            continue
        if expected is not None:
            found = np.concatenate(engine.score(ROWS))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4, err_msg=kind)
            equal.append(kind)
    assert len(equal) >= 45, (equal, refused)
    assert not refused.keys() & {"llava", "qwen3_vl", "mistral3", "smolvlm", "paligemma", "llama4", "internvl"}
