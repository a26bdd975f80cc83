"""The classifiers as torch modules: forward gives two logits a pair, label 1 meaning "is next"."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, PretrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from evaluator_serving.models.next_sentence import CAUSAL, SEQ2SEQ, NextSentence, next_sentence
from evaluator_serving.rows import GREEDY

WIDTH = 300
"""Width of the causal classifier's hidden layers."""


class Classifier(nn.Module):
    """A core language model under a decision between "is not next" (label 0) and "is next" (label 1)."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.core = core

    @property
    def config(self) -> PretrainedConfig:
        """The core model's config."""
        config: PretrainedConfig = self.core.config
        return config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


class CausalForNextSentence(Classifier):
    """Mean of a causal model's last hidden states, three linear layers (no activation between them, as published)."""

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self.head = nn.Sequential(nn.Linear(core.config.hidden_size, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, pool_padding: bool = False
    ) -> SequenceClassifierOutput:
        """Logits [batch, 2]. `pool_padding` takes the mean over padding too, as the published training does."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        states = self.core(input_ids=input_ids, attention_mask=mask, use_cache=False).last_hidden_state
        weights = (torch.ones_like(mask) if pool_padding else mask).to(states.dtype).unsqueeze(-1)
        return SequenceClassifierOutput(logits=self.head((states * weights).sum(dim=1) / weights.sum(dim=1)))


class Seq2SeqForNextSentence(Classifier):
    """An encoder-decoder model that answers with the text "0" or "1"; the labels' logits are read behind `how.forced`."""

    def __init__(self, core: Any, how: NextSentence) -> None:
        super().__init__(core)
        self.how = how

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SequenceClassifierOutput:
        """Logits [batch, 2] of the two labels' tokens."""
        encoder = self.core.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)

        def step(decoder: Tensor) -> Any:
            output = self.core(
                encoder_outputs=encoder, attention_mask=attention_mask, decoder_input_ids=decoder, use_cache=False
            )
            return output.logits[:, -1]

        known = tuple(token for token in self.how.forced if token != GREEDY)
        decoder = torch.tensor([known], device=input_ids.device).expand(len(input_ids), -1)
        if known != self.how.forced:
            decoder = torch.cat([decoder, step(decoder).argmax(dim=-1, keepdim=True)], dim=1)
        return SequenceClassifierOutput(logits=step(decoder)[:, list(self.how.labels)])

    def loss(self, input_ids: Tensor, attention_mask: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the target texts' tokens [batch, length]."""
        loss: Tensor = self.core(input_ids=input_ids, attention_mask=attention_mask, labels=targets).loss
        return loss


def build(core: Any, how: NextSentence) -> Classifier:
    """The classifier around a loaded core model."""
    return Seq2SeqForNextSentence(core, how) if core.config.is_encoder_decoder else CausalForNextSentence(core)


def load(path: Path, config: PretrainedConfig) -> Classifier:
    """The classifier of a folder that `save` wrote, in float32 and evaluation mode."""
    how = next_sentence(config)
    assert how is not None
    factory: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel
    module = build(factory.from_config(config, trust_remote_code=False), how)
    load_model(module, path / "model.safetensors")
    return module.eval()


def save(module: Classifier, how: NextSentence, tokenizer: Any, folder: Path, record: dict[str, Any]) -> None:
    """Write the classifier as a model folder, which appears whole or not at all; `record` becomes training.json."""
    scratch = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    tokenizer.save_pretrained(scratch)
    config = module.config.to_dict()
    config |= {"architectures": [SEQ2SEQ if module.config.is_encoder_decoder else CAUSAL]}
    config |= {"next_sentence": how.as_config()}
    (scratch / "config.json").write_text(json.dumps(config, indent=1, default=str), "utf8")
    (scratch / "training.json").write_text(json.dumps(record, indent=1), "utf8")
    save_model(module, str(scratch / "model.safetensors"))
    scratch.rename(folder)
