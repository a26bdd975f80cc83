"""Models whose numbers depend on padding or on the rows beside them: each row's are those that it has alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tiny_models import drawn_wide, tiny_model, tiny_tokenizer

from evaluator.reports.notes import run_notes
from evaluator.scoring.worker import Load, Worker
from evaluator_serving.checks.padding import MORE, find_mates, probes
from evaluator_serving.engine import EngineOptions
from evaluator_serving.errors import InputError
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import GREEDY, Row
from evaluator_serving.transformers_engine.engine import TransformersEngine
from tests.float64_loop import row_answers, saved_answers

_SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_PLACES: dict[str, Any] = {"max_position_embeddings": 64}

DEPENDENT: dict[str, dict[str, Any]] = {
    "MobileBert": {
        **{**_SMALL, **_PLACES, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16},
        "num_feedforward_networks": 2,
    },
    "ConvBert": {**_SMALL, **_PLACES, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 9},
    "FNet": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, **_PLACES, "tpu_short_seq_length": 64},
    "Funnel": {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1], "num_decoder_layers": 1},
    "Nystromformer": {**_SMALL, **_PLACES, "segment_means_seq_len": 64, "num_landmarks": 64},
    "Yoso": {**_SMALL, **_PLACES},
}
"""transformers' name → configuration. MobileBERT's depends on padding as its padding embedding isn't zero here."""

LABELS = {"label2id": {"other": 0, "is_next": 1}, "id2label": {0: "other", 1: "is_next"}}

LENGTHS = (5, 9, 9, 14, 14, 14, 30)


def masked_rows(seed: int = 0) -> list[Row]:
    """Rows of several lengths, masked in the middle."""
    dice = np.random.default_rng(seed)
    rows = []
    for n in LENGTHS:
        ids = (2, *map(int, dice.integers(5, 100, n - 2)), 3)
        at = n // 2
        rows.append(Row("masked", (*ids[:at], 4, *ids[at + 1 :]), ((at, 60), (at, 61))))
    return rows


def made(name: str, folder: Path, head: str = "ForMaskedLM", **options: Any) -> ModelSource:
    """A model with BERT's kind of tokenizer."""
    tokens = tiny_tokenizer("wordpiece")
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokens), pad_token_id=0, **options)
    drawn_wide(getattr(transformers, f"{name}{head}")(config)).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return resolve(str(folder))


@pytest.mark.parametrize("name", DEPENDENT)
def test_scores_of_a_padding_dependent_model_are_those_of_each_row_alone(name: str, tmp_path: Path) -> None:
    source = made(name, tmp_path, **DEPENDENT[name])
    rows = masked_rows()
    expected = saved_answers(source.path, rows, "AutoModelForMaskedLM")
    engine = TransformersEngine(source, EngineOptions(device="cpu"), rows)
    for some in (range(len(rows)), range(3), (6, 0)):  # all, as with --limit, as after resuming
        got = engine.score([rows[i] for i in some])
        assert [a.tolist() for a in got] == [pytest.approx(expected[i], abs=2e-4) for i in some]
    found = engine.details()["padding"]["masked"]
    assert found["mates"] == "equal"
    assert found["difference"] > 0.1


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_models_share_batches_as_before(family: str, dtype: str, tmp_path: Path) -> None:
    source = resolve(str(tiny_model(family, tmp_path)))
    rows = masked_rows()
    engine = TransformersEngine(source, EngineOptions(device="cpu", dtype=dtype), rows)
    assert "padding" not in engine.details()
    widths = []
    forward = engine._forwards["masked"]
    plain = forward.logits
    forward.logits = lambda batch: widths.append({len(row.ids) for row in batch}) or plain(batch)  # type: ignore[method-assign]
    engine.score(rows)
    assert widths == [{5, 9, 14, 30}]


def test_rows_alone_where_no_batch_can_be_computed(tmp_path: Path) -> None:
    """GPT-2's classifier without a padding token takes one text at a time."""
    tokens = tiny_tokenizer("gpt2")
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=len(tokens), **LABELS)
    model = drawn_wide(transformers.GPT2ForSequenceClassification(config))
    model.save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    rows = [Row("pair", tuple(range(10, 10 + n)), ((0, 1),)) for n in (4, 9, 9)]
    engine = TransformersEngine(resolve(str(tmp_path)), EngineOptions(device="cpu"), rows)
    expected = row_answers(model.double().eval(), rows)
    assert [a.tolist() for a in engine.score(rows)] == [pytest.approx(one, abs=1e-4) for one in expected]
    assert engine.details()["padding"] == {"pair": {"mates": "none", "difference": None}}


def test_pairs_and_encoders_that_depend_on_padding(tmp_path: Path) -> None:
    pairs = made("ConvBert", tmp_path / "pair", "ForSequenceClassification", **DEPENDENT["ConvBert"], **LABELS)
    texts = [row.ids for row in masked_rows()]
    rows = [Row("pair", ids, ((0, 1),), type_ids=(0,) * 3 + (1,) * (len(ids) - 3)) for ids in texts]
    engine = TransformersEngine(pairs, EngineOptions(device="cpu"), rows)
    expected = saved_answers(pairs.path, rows, "AutoModelForSequenceClassification")
    assert [a.tolist() for a in engine.score(rows)] == [pytest.approx(one, abs=2e-4) for one in expected]
    assert engine.details()["padding"]["pair"]["mates"] == "equal"

    tokens = tiny_tokenizer("wordpiece")
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ConvBertConfig(vocab_size=len(tokens), pad_token_id=0, **DEPENDENT["ConvBert"]),
        transformers.BertConfig(vocab_size=len(tokens), pad_token_id=0, **_SMALL, **_PLACES),
        decoder_start_token_id=2,
        pad_token_id=0,
    )
    both = drawn_wide(transformers.EncoderDecoderModel(config)).eval()
    both.save_pretrained(tmp_path / "both")
    tokens.save_pretrained(tmp_path / "both")
    rows = [Row("seq2seq", (2, 9, 12)[: 1 + i % 3], ((i % 3, 60),), encoder_ids=ids) for i, ids in enumerate(texts)]
    engine = TransformersEngine(resolve(str(tmp_path / "both")), EngineOptions(device="cpu"), rows)
    expected = row_answers(both.double(), rows)
    assert [a.tolist() for a in engine.score(rows)] == [pytest.approx(one, abs=2e-4) for one in expected]
    assert engine.details()["padding"]["seq2seq"]["mates"] == "equal"


def test_the_fact_is_in_a_replicas_answer_and_in_the_reports(tmp_path: Path) -> None:
    source = made("ConvBert", tmp_path, **DEPENDENT["ConvBert"])
    rows = tuple(row for row in masked_rows() if len(row.ids) == 14)  # all alike: the probes are of other lengths
    worker, load = Worker(), Load("transformers", source, EngineOptions(device="cpu"), rows, None, verify=True)
    worker.fetch(load)
    facts = worker.load(load)
    (note,) = run_notes({"models": {"conv": {"engine": "transformers", "engine_details": facts.details}}})
    assert note.startswith("conv: its masked output depends on padding (log P changes by up to")
    assert note.endswith("so only rows of equal length were computed together.")


def test_a_model_that_hashes_at_random_is_refused(tmp_path: Path) -> None:
    axes = {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "max_position_embeddings": 64}
    heads = {"num_attention_heads": 2, "attention_head_size": 16, "hidden_size": 32, "feed_forward_size": 48}
    hashing = {"attn_layers": ["lsh", "local"], "lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4, "num_buckets": 2}
    options = {"is_decoder": False, **axes, **heads, **hashing}
    with pytest.raises(InputError, match=r"model .*random: is not deterministic"):
        TransformersEngine(made("Reformer", tmp_path / "random", **options), EngineOptions(device="cpu"), masked_rows())
    seeded = made("Reformer", tmp_path / "seeded", **options, hash_seed=0)
    engine = TransformersEngine(seeded, EngineOptions(device="cpu"), masked_rows())
    assert engine.details()["padding"]["masked"]["mates"] in ("equal", "none")


# --- which rows may share a batch ---


def answers(rows: Sequence[Row], by: float) -> list[np.ndarray]:
    """An engine whose log P moves by `by` for each token of padding."""
    longest = max(len(row.ids) for row in rows)
    return [np.array([-0.1 * token + by * (longest - len(row.ids)) for _, token in row.lookups]) for row in rows]


def test_only_what_is_beyond_rounding_counts() -> None:
    rows = masked_rows()
    assert find_mates(lambda some: answers(some, 0.0), rows, 64, "float32").mates == "any"
    assert find_mates(lambda some: answers(some, 1e-6), rows, 64, "float32").mates == "any"
    longer = max(LENGTHS) - min(LENGTHS)
    assert longer > MORE[-1]
    found = find_mates(lambda some: answers(some, 1e-3), rows, 64, "float32")
    assert (found.mates, found.difference) == ("equal", pytest.approx(longer * 1e-3))
    assert find_mates(lambda some: answers(some, 1e-3), rows, 64, "bfloat16").mates == "any"
    beside = find_mates(lambda some: [a - len(some) for a in answers(some, 0.0)], rows, 64, "float32")
    assert beside.mates == "none"


def test_memory_is_not_taken_for_the_models_nature() -> None:
    def score(rows: Sequence[Row]) -> list[np.ndarray]:
        if len(rows) > 1:
            raise RuntimeError("CUDA out of memory")
        return answers(rows, 0.0)

    with pytest.raises(RuntimeError, match="out of memory"):
        find_mates(score, masked_rows(), 64, "float32")


@pytest.mark.parametrize("context", [16, 64, 10**6])
@pytest.mark.parametrize("kind", ["masked", "pair", "seq2seq", "causal"])
def test_probes_are_of_clearly_different_length(kind: Any, context: int) -> None:
    base = Row(kind, (2, 9, 10, 3, 11, 3), ((0, 1), (0, 60)), type_ids=(0, 0, 0, 0, 1, 1))
    if kind == "seq2seq":
        base = Row(kind, (0, 30, GREEDY), ((2, 60),), encoder_ids=base.ids)
    made = probes([base] * 3, context)
    lengths = [len(row.encoder_ids or row.ids) for row in made]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] <= context
    assert lengths[-1] - lengths[0] >= min(MORE[-1], context - 4)
    for row in made:
        assert GREEDY not in row.ids
        assert row.type_ids is None or len(row.type_ids) == len(row.ids)
        assert (row.encoder_ids or row.ids)[:1] == (2,)
        assert (row.encoder_ids or row.ids)[-3:] == (3, 11, 3)
        assert max(at for at, _ in row.lookups) == (0 if kind == "pair" else len(row.ids) - 1)
