"""transformers models by head: loading, with the checks that loading alone can make, and the forward pass."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from evaluator_serving.batching import positions
from evaluator_serving.errors import InputError
from evaluator_serving.models import ModelSource, first_line, quiet
from evaluator_serving.nsp import next_sentence
from evaluator_serving.rows import GREEDY, Head, Row

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}
"""How far two ways to compute the same logits may differ, relative to the largest: rounding, not another function."""


def load(source: ModelSource, head: Head, dtype: torch.dtype, device: torch.device) -> Any:
    """The model with the head that `head` asks for, in evaluation mode on `device`.

    Raises InputError where the weights can't be read, or where some of the model's (its head's above all) are missing
    from the checkpoint and would be random numbers.
    """
    quiet()
    try:
        if next_sentence(source.config) is not None:
            from evaluator_serving.nsp.modules import load as load_classifier

            return load_classifier(source.path, source.config).to(device, dtype)
        factory = _factory(source, head)
        model, info = factory.from_pretrained(
            source.path, dtype=dtype, local_files_only=True, output_loading_info=True, use_safetensors=None
        )
    except Exception as error:
        raise InputError(f"model {source.spec}: its weights can't be loaded ({first_line(error)})") from error
    parameters = {name for name, _ in model.named_parameters()}
    missing = sorted(set(info["missing_keys"]) & parameters)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"model {source.spec}: {missing[0]}{more} not in the checkpoint, so its {head} head would be random; "
            "use a checkpoint that was saved with this head"
        )
    return model.eval().to(device)


def _factory(source: ModelSource, head: Head) -> Any:
    import transformers

    if head == "pair":
        named = getattr(source.config, "architectures", None) or []
        classifier = any(name.endswith("ForSequenceClassification") for name in named)
        return (
            transformers.AutoModelForSequenceClassification if classifier else transformers.AutoModelForNextSentencePrediction
        )
    return {
        "masked": transformers.AutoModelForMaskedLM,
        "causal": transformers.AutoModelForCausalLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
    }[head]


class Forward:
    """One loaded model's forward pass, with the vocabulary head computed only at the positions that are read.

    The trick fits every family: a hook on the body (everything below the head) replaces its [batch, length, hidden]
    output by the [1, reads, hidden] states at the positions read. What the model does next (transform, decoder, bias,
    scaling, soft-capping) works on each position by itself, so it is the model's own code that makes the logits. A
    model for which that isn't so is found out by `check` and computes all positions.
    """

    def __init__(self, model: Any, head: Head) -> None:
        self.model = model
        self.head = head
        self.gathers = head != "pair" and self._body() is not model

    @property
    def vocabulary(self) -> int:
        """Width of a logit vector."""
        config = self.model.config
        return int(config.num_labels if self.head == "pair" else config.get_text_config().vocab_size)

    def check(self, rows: Sequence[Row]) -> None:
        """Compare some rows' logits with the plain forward pass's, and do without the trick if they differ."""
        if not self.gathers:
            return
        gathered = self.logits(rows)
        self.gathers = False
        plain = self.logits(rows)
        scale = _CLOSE[plain.dtype] * max(1.0, float(plain.abs().max()))
        self.gathers = gathered.shape == plain.shape and bool((gathered - plain).abs().max() <= scale)

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Logits [reads, vocabulary] at each row's read positions (ascending within a row), in the model's dtype."""
        inputs = self._inputs(self._without_greedy(rows))
        if self.head == "pair":
            logits: Tensor = self.model(**inputs).logits
            return logits
        where = [(i, at) for i, row in enumerate(rows) for at in positions(row)]
        batch, at = (torch.tensor(index, device=self.model.device) for index in zip(*where, strict=True))
        if not self.gathers:
            logits = self.model(**inputs).logits[batch, at]
            return logits
        hook = self._body().register_forward_hook(lambda _module, _args, output: _pick(output, batch, at))
        try:
            logits = self.model(**inputs).logits[0]
        finally:
            hook.remove()
        return logits

    def _without_greedy(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with GREEDY replaced by the model's own most probable token."""
        open_rows = [i for i, row in enumerate(rows) if row.ids[-1] == GREEDY]
        if not open_rows:
            return rows
        asked = [replace(rows[i], ids=rows[i].ids[:-1], lookups=((len(rows[i].ids) - 2, 0),)) for i in open_rows]
        filled = list(rows)
        for i, token in zip(open_rows, self.logits(asked).argmax(dim=-1).tolist(), strict=True):
            filled[i] = replace(rows[i], ids=(*rows[i].ids[:-1], token))
        return filled

    def _body(self) -> Any:
        """The part of the model below its head."""
        body = self.model.base_model
        if body is self.model and self.head == "seq2seq":
            return self.model.get_decoder()
        return body

    def _inputs(self, rows: Sequence[Row]) -> dict[str, Any]:
        ids = [row.ids for row in rows]
        if self.head == "causal":
            # Padding stands on the right, where no causal position looks: no mask, and attention's fastest path.
            return {"input_ids": self._padded(ids), "use_cache": False}
        if self.head == "seq2seq":
            return {"decoder_input_ids": self._padded(ids), "use_cache": False, **self._encoded(rows)}
        inputs: dict[str, Any] = {"input_ids": self._padded(ids)}
        if len(set(map(len, ids))) > 1:
            inputs["attention_mask"] = self._mask(ids)
        if any(row.type_ids for row in rows):
            inputs["token_type_ids"] = self._padded([row.type_ids or (0,) * len(row.ids) for row in rows], 0)
        return inputs

    def _encoded(self, rows: Sequence[Row]) -> dict[str, Any]:
        """The encoder's states for each row; a text that several rows share is encoded once."""
        texts = {text: n for n, text in enumerate(dict.fromkeys(row.encoder_ids or () for row in rows))}
        mask = self._mask(list(texts))
        encoder = self.model.get_encoder()
        states = encoder(input_ids=self._padded(list(texts)), attention_mask=mask).last_hidden_state
        which = torch.tensor([texts[row.encoder_ids or ()] for row in rows], device=self.model.device)
        return {"encoder_outputs": BaseModelOutput(last_hidden_state=states[which]), "attention_mask": mask[which]}

    def _padded(self, sequences: Sequence[tuple[int, ...]], pad: int | None = None) -> Tensor:
        """[sequences, longest], padded on the right with `pad`, else with the model's own padding id."""
        if pad is None:
            pad = self.model.config.get_text_config().pad_token_id or 0
        longest = max(map(len, sequences))
        return torch.tensor([[*ids, *(pad,) * (longest - len(ids))] for ids in sequences], device=self.model.device)

    def _mask(self, sequences: Sequence[tuple[int, ...]]) -> Tensor:
        """1 where a token stands and 0 where there is padding, [sequences, longest]."""
        return self._padded([(1,) * len(ids) for ids in sequences], 0)


def _pick(output: Any, batch: Tensor, at: Tensor) -> Any:
    """A body's output, its last hidden states [batch, length, hidden] replaced by those read, [1, reads, hidden]."""
    states = output[0][batch, at].unsqueeze(0)
    if isinstance(output, tuple):
        return (states, *output[1:])
    picked = copy.copy(output)
    picked["last_hidden_state"] = states
    return picked
