"""The classifiers as torch modules: forward gives two logits a pair, label 1 meaning "is next"."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, PretrainedConfig

from evaluator_serving.nsp import CAUSAL, SEQ2SEQ, NextSentence, next_sentence

WIDTH = 300
"""Width of the causal classifier's hidden layers."""


class CausalForNextSentence(nn.Module):
    """Mean of a causal model's last hidden states, three linear layers (no activation between them, as published)."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.core = core
        hidden = core.config.hidden_size
        self.head = nn.Sequential(nn.Linear(hidden, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, pool_padding: bool = False) -> Tensor:
        """Logits [batch, 2]. `pool_padding` takes the mean over padding too, as the published training does."""
        states = self.core(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        weights = torch.ones_like(attention_mask) if pool_padding else attention_mask
        weights = weights.to(states.dtype).unsqueeze(-1)
        logits: Tensor = self.head((states * weights).sum(dim=1) / weights.sum(dim=1))
        return logits


class Seq2SeqForNextSentence(nn.Module):
    """An encoder-decoder model that answers with the text "0" or "1"; the label's logits are read where the two differ."""

    def __init__(self, core: Any, how: NextSentence) -> None:
        super().__init__()
        self.core = core
        self.how = how

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits [batch, 2] of the two labels' tokens."""
        forced = torch.tensor([self.how.forced], device=input_ids.device).expand(len(input_ids), -1)
        output = self.core(input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=forced, use_cache=False)
        return output.logits[:, -1, list(self.how.labels)]

    def loss(self, input_ids: Tensor, attention_mask: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the target texts' tokens [batch, length]."""
        loss: Tensor = self.core(input_ids=input_ids, attention_mask=attention_mask, labels=targets).loss
        return loss


def build(core: Any, how: NextSentence) -> nn.Module:
    """The classifier around a loaded core model."""
    return Seq2SeqForNextSentence(core, how) if core.config.is_encoder_decoder else CausalForNextSentence(core)


def load(path: Path, config: PretrainedConfig) -> nn.Module:
    """The classifier of a folder that `save` wrote, in float32 and evaluation mode."""
    how = next_sentence(config)
    assert how is not None
    factory = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel
    module = build(factory.from_config(config), how)
    load_model(module, path / "model.safetensors")
    return module.eval()


def save(module: nn.Module, how: NextSentence, tokenizer: Any, folder: Path, record: dict[str, Any]) -> None:
    """Write the classifier as a model folder, which appears whole or not at all; `record` becomes training.json."""
    scratch = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    core: Any = module.core
    tokenizer.save_pretrained(scratch)
    config = core.config.to_dict()
    config |= {"architectures": [SEQ2SEQ if core.config.is_encoder_decoder else CAUSAL]}
    config |= {"next_sentence": how.as_config()}
    (scratch / "config.json").write_text(json.dumps(config, indent=1, default=str), "utf8")
    (scratch / "training.json").write_text(json.dumps(record, indent=1), "utf8")
    save_model(module, str(scratch / "model.safetensors"))
    scratch.rename(folder)
