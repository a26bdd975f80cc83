"""vLLM's buffers: bounded by what the device can give, large enough for the rows."""

import pytest
from transformers import GPT2Config, LlamaConfig, MambaConfig

from evaluator_serving.checks.verify import sample_rows
from evaluator_serving.rows import Row, Workload
from evaluator_serving.vllm_engine.sizing import GIB, Device, kv_bytes_per_token, sizes

SMOLLM = LlamaConfig(
    hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, head_dim=64, vocab_size=49152
)
HUGE_VOCABULARY = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=262144)
GPU = Device.gpu(80 * GIB)


def rows(count: int, length: int) -> list[Row]:
    return [Row("causal", tuple(range(length)), ((length - 1, 0),))] * count


def test_kv_cache_bytes_by_hand() -> None:
    # keys and values, 30 layers, 3 heads of 64 numbers, 4 bytes
    assert kv_bytes_per_token(SMOLLM, "float32", 1) == 2 * 30 * 3 * 64 * 4
    # 3 heads on 2 devices: the fuller one has 2
    assert kv_bytes_per_token(SMOLLM, "bfloat16", 2) == 2 * 30 * 2 * 64 * 2
    assert kv_bytes_per_token(GPT2Config(n_layer=12, n_head=12, n_embd=768), "float32", 1) == 2 * 12 * 768 * 4


def test_models_with_other_states_keep_vllms_choice() -> None:
    assert kv_bytes_per_token(MambaConfig(num_hidden_layers=2), "float32", 1) is None
    found = sizes(Workload.of(rows(10, 20)), SMOLLM, GPU, kv_token=None, weights=GIB, tokens=None)
    assert "kv_cache_memory_bytes" not in found.arguments()
    assert found.gpu_memory_utilization == 0.9


def test_length_is_the_longest_row_and_one_more() -> None:
    assert sizes(Workload.of(rows(3, 37)), SMOLLM, Device.cpu(), kv_token=46080, weights=0, tokens=None).max_model_len == 38


@pytest.mark.parametrize("length", [1, 30, 3000])
@pytest.mark.parametrize("config", [SMOLLM, HUGE_VOCABULARY])
@pytest.mark.parametrize("device", [Device.cpu(), GPU])
def test_every_sequence_in_flight_has_its_blocks_and_its_logits(config: LlamaConfig, device: Device, length: int) -> None:
    token = kv_bytes_per_token(config, "float32", 1)
    assert token is not None
    found = sizes(Workload.of(rows(5000, length)), config, device, kv_token=token, weights=GIB, tokens=None)
    assert found.kv_cache_memory_bytes is not None
    assert found.max_num_seqs * (length + 2) * token <= found.kv_cache_memory_bytes
    assert found.max_num_seqs * config.vocab_size * 4 <= device.logits
    assert min(length, found.max_num_batched_tokens) * config.vocab_size * 12 <= max(device.logits, 16 * config.vocab_size * 12)
    assert 1 <= found.max_num_seqs <= found.max_num_batched_tokens


def test_gpu_share_is_what_is_needed() -> None:
    token = kv_bytes_per_token(SMOLLM, "bfloat16", 1)
    small = sizes(Workload.of(rows(100, 30)), SMOLLM, GPU, kv_token=token, weights=GIB // 4, tokens=None)
    large = sizes(Workload.of(rows(100, 30)), SMOLLM, GPU, kv_token=token, weights=60 * GIB, tokens=None)
    assert small.gpu_memory_utilization is not None
    assert large.gpu_memory_utilization is not None
    assert small.gpu_memory_utilization < 0.2 < 0.75 < large.gpu_memory_utilization <= 0.95


def test_the_users_limit_of_tokens_holds() -> None:
    found = sizes(Workload.of(rows(100, 30)), SMOLLM, GPU, kv_token=46080, weights=0, tokens=64)
    assert found.max_num_batched_tokens == 64
    assert found.max_num_seqs <= 64


def test_some_rows_and_the_whole_runs_workload_size_as_all_rows_do() -> None:
    """As a replica is sized: 64 rows alone would give 1,280 tokens a step where the whole run fills 16,384."""
    run = [row for length in range(10, 31) for row in rows(100, length)]
    some = sample_rows(run)
    config = {"kv_token": 46080, "weights": GIB, "tokens": None}
    found = sizes(Workload.of(run).holding(some), SMOLLM, GPU, **config)
    assert found == sizes(Workload.of(run), SMOLLM, GPU, **config)
    assert (found.max_num_batched_tokens, found.max_num_seqs, found.max_model_len) == (16384, (4 << 30) // (128 * 46080), 31)
    # rows that aren't the run's, a check's say, find room too
    assert sizes(Workload.of(run).holding(rows(1, 50)), SMOLLM, GPU, **config).max_model_len == 51
