"""The forward pass of a loaded transformers model, by head."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evaluator_kernels import masked_log_probs
from evaluator_kernels.problem import FLOAT_TYPES, PADDING
from evaluator_serving.batching import positions
from evaluator_serving.models.config import context, padding, rotary_turn, window
from evaluator_serving.packing import Packed, pack
from evaluator_serving.rows import GREEDY, Head, Row
from evaluator_serving.transformers_engine import folding
from evaluator_serving.transformers_engine.folding import Fold
from evaluator_serving.transformers_engine.products import pack_weights, possible, unpack_weights
from evaluator_serving.transformers_engine.watching import Watch, counts_places

_FUSED = ("cuda",)
"""Where the fused vocabulary head is used: on CPUs products with weights that are laid out are faster."""

_CLOSE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}
"""How far two ways to compute the same logits may differ, relative to the largest: rounding, not another function. In float64
too it is float32's: transformers computes parts of some models (Gemma's softmax) in float32 whatever the dtype."""

_ROWS = 8
"""Attention folds where its rows, padding included, hold at most so many times the nodes of their tree."""

_FORK = 48
"""Tokens of the rows made for the check, at least."""

_READS = 16
"""Positions of such a row that are read: the vocabulary's logits at all of them would be more than a batch's."""

Numbers = NDArray[np.floating]

Spots = list[dict[int, tuple[int, int]]]
"""Per row, for each position read: which sequence of the input and which place in it."""


class _HeadReached(Exception):  # noqa: N818 – no error: it carries what the vocabulary head was called with
    """A forward pass that is over where the vocabulary head begins; `states` are its input."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states = states


class Forward:
    """One loaded model's forward pass, with the vocabulary head computed only at the positions that are read.

    Some tricks fit most families, because the model's own code does the rest; each is tried out on loading and left out
    where a model doesn't bear it:

    - `gathers`: a hook on the body (everything below the head) replaces its [batch, length, hidden] output by the
      [1, reads, hidden] states at the positions read. What comes next (transform, decoder, bias, scaling, soft-capping)
      works on each position by itself.
    - `packs`: a causal model gets sequences that begin alike as one tree, with positions and a mask to match, so that
      what they share is computed once;
    - `folds`: in the place of the mask, attention goes row by row over such a tree (`folding`).
    - `encodes`: an encoder-decoder model encodes each text once, and its decoder gets the states without the text;
    - `fuses`: on CUDA the vocabulary head and its log-softmax are one kernel that never writes the logits
      (`evaluator_kernels.masked_log_probs`), if the head is a linear layer and nothing comes behind it.

    On CPUs the weights of linear layers are laid out for products once, where that changes nothing else either; `products` says
    how they are multiplied.

    Rows share a tree only up to the length that was checked, and only of a model that takes positions as they are given instead
    of counting its input's places, and whose layers see every earlier token at that length: one that `chooses` them, or has a
    window, doesn't. That is read off the model's own calls (`watching`): the numbers of a few rows may not show it.

    A `live` model is in training: its weights stay as they are.
    """

    def __init__(self, model: Any, head: Head, *, live: bool = False) -> None:
        self.model = model
        self.live = live
        self.head = head
        self.gathers = head != "pair" and self._body() is not model
        self.packs = head == "causal"
        self.folds = self.packs and folding.install(model)
        self.encodes = head == "seq2seq"
        self.fuses = head != "pair" and model.device.type in _FUSED and self._fusible()
        self.chooses = False
        self.products = "as PyTorch does"
        self._longest = min(window(model.config), rotary_turn(model.config) or math.inf)

    @property
    def vocabulary(self) -> int:
        """Width of a logit vector."""
        config = self.model.config
        return int(config.num_labels if self.head == "pair" else config.get_text_config().vocab_size)

    def check(self, rows: Sequence[Row], *, split: bool = False) -> None:
        """Compare the tricks with the plain forward pass, on the first of `rows`; trees, on rows as long as the last one.

        `split`: see `products.pack_weights`.
        """
        wanted = {trick: getattr(self, trick) for trick in ("gathers", "packs", "folds", "encodes", "fuses")}
        lays_out = possible(self.model)
        if not any(wanted.values()) and not lays_out:
            return
        self.gathers = self.packs = self.folds = self.encodes = self.fuses = False
        row, forked = _read_widely(rows[0]), list[Row]()
        plain = apart = self._read([row])
        if wanted["packs"]:
            self._longest = min(self._longest, context(self.model.config), max(_FORK, len(rows[-1].ids)))
            forked = _forked(rows[-1], int(self._longest))
            read, watched = zip(*map(self._watched, forked), strict=True)
            apart = torch.cat(read)
            self.chooses = watched[0].choices != watched[-1].choices
            if self.chooses or not all(watch.causal for watch in watched) or counts_places(self.model):
                wanted |= {"packs": False, "folds": False}

        def good(trick: str) -> bool:
            try:
                if trick in ("packs", "folds"):
                    return _close(self._read(forked), apart)
                if trick == "fuses":
                    return self._fuses_right(row, plain)
                # Twice the same row: without padding, which not every model bears, as not every one bears two in a batch.
                return _close(self._read([row, row] if trick == "gathers" else [row]), plain)
            except Exception:  # whatever a model raises that has no use for positions or a mask of its own
                return False

        for trick, borne in wanted.items():
            setattr(self, trick, borne)
            setattr(self, trick, borne and good(trick))
        for way in (True, False) if split else (False,):
            if lays_out and self.lay_out(split=way) and good("products"):
                return
        self._as_loaded()

    def _watched(self, row: Row) -> tuple[Tensor, Watch]:
        """The logits of one row's reads, and what the model called for them."""
        with Watch() as watch:
            return self._read([row]), watch

    def lay_out(self, *, split: bool) -> bool:
        """Lay out the weights for products (see `products.pack_weights`). Says whether that could be done with all of them."""
        if self.live:
            return False
        self._as_loaded()
        try:
            self.products = pack_weights(self.model, split=split)
        except Exception:  # whatever oneDNN raises for a shape that it has no layout for
            return False
        return True

    def _as_loaded(self) -> None:
        """Undo what was laid out."""
        unpack_weights(self.model)
        self.products = "as PyTorch does"

    def logits(self, rows: Sequence[Row]) -> tuple[Tensor, list[dict[int, int]]]:
        """Logits [n, vocabulary] in the model's dtype and, per row, which of the n belong to each position read."""
        return self._at_reads(rows, self._head)

    def _at_reads(
        self, rows: Sequence[Row], compute: Callable[[dict[str, Any], Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, list[dict[int, int]]]:
        """What `compute` makes of the model's arguments and the positions read, and which of it is at each row's positions."""
        rows = self._without_greedy(rows)
        # What a model keeps of a call in inference mode couldn't be trained through.
        with torch.no_grad() if self.live else torch.inference_mode():
            inputs, spots, fold = self._inputs(rows)
            if self.head == "pair":
                return self.model(**inputs).logits, [{0: i} for i in range(len(rows))]
            where = {spot: n for n, spot in enumerate(dict.fromkeys(spot for row in spots for spot in row.values()))}
            sequence, place = (torch.tensor(index, device=self.model.device) for index in zip(*where, strict=True))
            with folding.folded(fold):
                found = compute(inputs, sequence, place)
            return found, [{at: where[spot] for at, spot in row.items()} for row in spots]

    def numbers(self, rows: Sequence[Row]) -> list[Numbers]:
        """log P of every lookup of rows of this head, natural, float32 or, for a model in float64, float64."""
        if self.fuses:
            return _split(rows, self._fused(rows))
        logits, spots = self.logits(rows)
        if self.head == "pair":
            logits = logits.double()  # two labels: in float32 a confident classifier's "is next" would be rounded to ties
        index, tokens = zip(*_lookups(rows, spots), strict=True)
        return _split(rows, log_probs(logits, torch.tensor(index), torch.tensor(tokens)))

    def _fused(self, rows: Sequence[Row]) -> Tensor:
        """The same of all rows, one after the other, from the states below the vocabulary head."""
        states, spots = self._at_reads(rows, self._states)
        candidates: list[list[int]] = [[] for _ in range(len(states))]
        places = []
        for read, token in _lookups(rows, spots):
            places.append((read, len(candidates[read])))
            candidates[read].append(token)
        most = max(map(len, candidates))
        ids = torch.tensor([[*some, *(PADDING,) * (most - len(some))] for some in candidates], device=states.device)
        head = self.model.get_output_embeddings()
        with torch.no_grad():
            found = masked_log_probs(states, head.weight, ids, head.bias).log_probs
            return found[tuple(torch.tensor(places, device=found.device).T)]

    def _states(self, inputs: dict[str, Any], sequence: Tensor, place: Tensor) -> Tensor:
        """What the vocabulary head would get at the positions read, [reads, hidden]; the forward pass ends there."""

        def stop(_module: Any, args: tuple[Tensor, ...]) -> None:
            raise _HeadReached(args[0])

        hook = self.model.get_output_embeddings().register_forward_pre_hook(stop)
        try:
            self._head(inputs, sequence, place)
        except _HeadReached as reached:
            return reached.states[0] if self.gathers else reached.states[sequence, place]
        finally:
            hook.remove()
        raise RuntimeError("the model computes its logits without its vocabulary head")

    def _fuses_right(self, row: Row, plain: Tensor) -> bool:
        """Whether a row's numbers of some tokens are those of its logits."""
        tokens = (0, plain.shape[-1] // 2, plain.shape[-1] - 1)
        asked = replace(row, lookups=tuple((at, token) for at in positions(row) for token in tokens))
        expected = torch.log_softmax(plain.float(), dim=-1)[:, tokens].flatten().to(plain.dtype)
        return _close(torch.from_numpy(self.numbers([asked])[0]), expected.cpu())

    def _fusible(self) -> bool:
        """Whether the kernel can compute the vocabulary head at all."""
        head = self.model.get_output_embeddings() if hasattr(self.model, "get_output_embeddings") else None
        return type(head) is torch.nn.Linear and head.weight.dtype in FLOAT_TYPES

    def _head(self, inputs: dict[str, Any], sequence: Tensor, place: Tensor) -> Tensor:
        if not self.gathers:
            logits: Tensor = self.model(**inputs).logits[sequence, place]
            return logits
        hook = self._body().register_forward_hook(lambda _module, _args, output: _pick(output, sequence, place))
        try:
            logits = self.model(**inputs).logits[0]
        finally:
            hook.remove()
        return logits

    def _read(self, rows: Sequence[Row]) -> Tensor:
        """Logits of every read in the rows' order."""
        logits, index = self.logits(rows)
        return logits[[n for row in index for n in row.values()]]

    def _without_greedy(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with GREEDY replaced by the model's own most probable token."""
        open_rows = [i for i, row in enumerate(rows) if row.ids[-1] == GREEDY]
        if not open_rows:
            return rows
        asked = [replace(rows[i], ids=rows[i].ids[:-1], lookups=((len(rows[i].ids) - 2, 0),)) for i in open_rows]
        filled = list(rows)
        for i, token in zip(open_rows, self._read(asked).argmax(dim=-1).tolist(), strict=True):
            filled[i] = replace(rows[i], ids=(*rows[i].ids[:-1], token))
        return filled

    def _body(self) -> Any:
        """The part of the model below its head."""
        body = self.model.base_model
        if body is self.model and self.head == "seq2seq":
            return self.model.get_decoder()
        return body

    def _inputs(self, rows: Sequence[Row]) -> tuple[dict[str, Any], Spots, Fold | None]:
        """The model's arguments for these rows, where in them each row's reads are, and how attention folds."""
        ids = [row.ids for row in rows]
        # A row alone shares nothing: no tree, and no mask that would hide what the model itself lets it see.
        if self.packs and len(rows) > 1 and (longest := max(map(len, ids))) <= self._longest:
            tree = pack(ids, width=sum(map(len, ids))) if self.folds else None
            # Where much is shared, attention's rows would be far more than the tree.
            if tree and len(rows) * longest <= _ROWS * len(tree.packs[0].ids):
                return *self._trees(rows, tree), Fold.of([path for _, path in tree.paths], self.model.device)
            return *self._packed(rows), None
        return *self._plain(rows), None

    def _plain(self, rows: Sequence[Row]) -> tuple[dict[str, Any], Spots]:
        """Rows beneath each other, with padding."""
        ids = [row.ids for row in rows]
        spots: Spots = [{at: (i, at) for at in positions(row)} for i, row in enumerate(rows)]
        if self.head == "causal":
            # Padding stands on the right, where no causal position looks: no mask, and attention's fastest path.
            return {"input_ids": self._padded(ids), "use_cache": False}, spots
        if self.head == "seq2seq":
            return {"decoder_input_ids": self._padded(ids), "use_cache": False, **self._encoder(rows)}, spots
        inputs: dict[str, Any] = {"input_ids": self._padded(ids)}
        if len(set(map(len, ids))) > 1:
            inputs["attention_mask"] = self._mask(ids)
        if any(row.type_ids for row in rows):
            inputs["token_type_ids"] = self._padded([row.type_ids or (0,) * len(row.ids) for row in rows], 0)
        return inputs, spots

    def _packed(self, rows: Sequence[Row]) -> tuple[dict[str, Any], Spots]:
        """Rows as trees: the mask is additive, [packs, 1, width, width], 0 where a node looks and very negative elsewhere."""
        packed = pack([row.ids for row in rows])
        width = max(len(tree.ids) for tree in packed.packs)
        seen = torch.tensor(np.stack([tree.mask(width) for tree in packed.packs]), device=self.model.device)
        hidden = torch.finfo(self.model.dtype).min
        mask = torch.zeros(seen.shape, dtype=self.model.dtype, device=self.model.device).masked_fill_(~seen, hidden)
        inputs, spots = self._trees(rows, packed)
        return inputs | {"attention_mask": mask[:, None]}, spots

    def _trees(self, rows: Sequence[Row], packed: Packed) -> tuple[dict[str, Any], Spots]:
        """The inputs of trees, with a mask that stands for none: models take one of four dimensions as it is."""
        inputs = {
            "input_ids": self._padded([tree.ids for tree in packed.packs]),
            "position_ids": self._padded([tree.places for tree in packed.packs], 0),
            "attention_mask": torch.zeros(1, 1, 1, 1, dtype=self.model.dtype, device=self.model.device),
            "use_cache": False,
        }
        paths = zip(rows, packed.paths, strict=True)
        return inputs, [{at: (tree, nodes[at]) for at in positions(row)} for row, (tree, nodes) in paths]

    def _encoder(self, rows: Sequence[Row]) -> dict[str, Any]:
        """The encoder's text of each row, or its states: a text that several rows share is encoded once."""
        if not self.encodes:
            whole = [row.encoder_ids or () for row in rows]
            return {"input_ids": self._padded(whole), "attention_mask": self._mask(whole)}
        texts = {text: n for n, text in enumerate(dict.fromkeys(row.encoder_ids or () for row in rows))}
        mask = self._mask(list(texts))
        encoder = self.model.get_encoder()
        made = encoder(input_ids=self._padded(list(texts)), attention_mask=mask)
        which = torch.tensor([texts[row.encoder_ids or ()] for row in rows], device=self.model.device)
        # The encoder's own kind of output: decoders of mixtures of experts ask it for more than states.
        made["last_hidden_state"] = made.last_hidden_state[which]
        return {"encoder_outputs": made, "attention_mask": mask[which]}

    def _padded(self, sequences: Sequence[tuple[int, ...]], pad: int | None = None) -> Tensor:
        """[sequences, longest], padded on the right with `pad`, else with the model's own padding id."""
        if pad is None:
            pad = padding(self.model.config) or 0
        longest = max(map(len, sequences))
        return torch.tensor([[*ids, *(pad,) * (longest - len(ids))] for ids in sequences], device=self.model.device)

    def _mask(self, sequences: Sequence[tuple[int, ...]]) -> Tensor:
        """1 where a token stands and 0 where there is padding, [sequences, longest]."""
        return self._padded([(1,) * len(ids) for ids in sequences], 0)


def _read_widely(row: Row) -> Row:
    """The row read at several positions, whatever it was read at; a decoder gets some of its encoder's tokens for that."""
    if row.head == "pair":
        return row
    ids = (*(token for token in row.ids if token != GREEDY), *(row.encoder_ids or ())[:_READS])
    step = -(-len(ids) // _READS)
    return replace(row, ids=ids, lookups=tuple((at, 0) for at in range((len(ids) - 1) % step, len(ids), step)))


def _forked(row: Row, length: int) -> list[Row]:
    """Rows of so many tokens and fewer that share beginnings and part from each other, made of the given one's tokens."""
    one = tuple(islice(cycle((*row.ids, *(token for _, token in row.lookups))), length))
    other, half = one[::-1], length // 2
    return [_read_widely(replace(row, ids=ids)) for ids in (one, one[:half] + other[half:], other, one[: half + 1])]


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether logits [n, vocabulary], or [2n, vocabulary] where each came twice, differ from others by rounding at most."""
    a = a.view(-1, *b.shape)
    return bool((a - b).abs().max() <= _CLOSE[b.dtype] * max(1.0, float(b.abs().max())))


def _pick(output: Any, batch: Tensor, at: Tensor) -> Any:
    """A body's output, its last hidden states [batch, length, hidden] replaced by those read, [1, reads, hidden]."""
    # Where layers are laid over several devices, the last one's are elsewhere than the inputs.
    states = output[0][batch.to(output[0].device), at.to(output[0].device)].unsqueeze(0)
    if isinstance(output, tuple):
        return (states, *output[1:])
    picked = copy.copy(output)
    picked["last_hidden_state"] = states
    return picked


def log_probs(logits: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """log P of tokens [K] at rows index [K] of logits [N, V]: logit − logsumexp, in float32 or better.

    Natural logarithms. NaN where the row has a NaN or +∞ logit or the token's own logit isn't finite.
    """
    # torch subtracts the largest logit first: the logarithm of the sum is then small, and so is its rounding.
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(logits, dim=-1)[index.to(logits.device), tokens.to(logits.device)]


def _lookups(rows: Sequence[Row], spots: Sequence[dict[int, int]]) -> list[tuple[int, int]]:
    """Of every lookup of the rows, one after the other: which of the positions read it is at, and its token."""
    return [(where[at], token) for row, where in zip(rows, spots, strict=True) for at, token in row.lookups]


def _split(rows: Sequence[Row], values: Tensor) -> list[Numbers]:
    """The values of all lookups, row by row."""
    return np.split(values.cpu().numpy(), np.cumsum([len(row.lookups) for row in rows])[:-1])
