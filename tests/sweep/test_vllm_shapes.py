"""What the plan makes of awkward head counts, held against vLLM's own configuration and layers."""

from pathlib import Path
from typing import Any

import pytest

from evaluator.sweep.planning.fit import Demand
from evaluator.sweep.planning.plan import _kv_heads
from evaluator_serving.engine import EngineOptions

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def configurations() -> list[Any]:
    from transformers import FalconConfig, GPT2Config, LlamaConfig

    llama: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 16, "vocab_size": 100}
    falcon: dict[str, Any] = {"hidden_size": 71 * 8, "num_attention_heads": 71, "num_hidden_layers": 16, "vocab_size": 100}
    return [
        LlamaConfig(**llama, num_attention_heads=24, num_key_value_heads=6, architectures=["LlamaForCausalLM"]),
        LlamaConfig(**llama, num_attention_heads=24, num_key_value_heads=2, architectures=["LlamaForCausalLM"]),
        FalconConfig(**falcon, architectures=["FalconForCausalLM"]),
        FalconConfig(
            **{**falcon, "hidden_size": 96, "num_attention_heads": 24},
            num_kv_heads=4,
            new_decoder_architecture=True,
            architectures=["FalconForCausalLM"],
        ),
        GPT2Config(n_embd=100, n_head=25, n_layer=16, vocab_size=100, architectures=["GPT2LMHeadModel"]),
    ]


def test_vllm_takes_the_sizes_and_no_larger_tensor_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import vllm.model_executor.layers.linear as linear
    import vllm.model_executor.parameter as parameter
    from vllm.config import ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config

    def accepted(model: ModelConfig, tensor: int, pipeline: int) -> bool:
        """Whether vLLM's configuration, and then its attention's layer, take these sizes."""
        parallel = ParallelConfig(
            tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, distributed_executor_backend="mp"
        )
        arch = model.model_arch_config
        for module in (linear, parameter):
            monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: tensor)
            monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: 0)
        try:
            model.verify_with_parallel_config(parallel)
            sizes = arch.hidden_size, arch.head_size, arch.total_num_attention_heads, arch.total_num_kv_heads
            with torch.device("meta"), set_current_vllm_config(VllmConfig()):
                linear.QKVParallelLinear(*sizes, params_dtype=torch.float32)
        except (AssertionError, ValueError):
            return False
        return True

    for number, config in enumerate(configurations()):
        folder = tmp_path / str(number)
        config.save_pretrained(folder)
        model = ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="float32", seed=0)
        assert _kv_heads(config) in (0, model.model_arch_config.total_num_kv_heads)
        demand = Demand("m", "vllm", "float32", 1, 1, 1, config.num_attention_heads, 1, EngineOptions(), _kv_heads(config))
        for devices in (2, 3, 4, 8, 16):
            tensor, pipeline = demand.divided(devices)
            assert accepted(model, tensor, pipeline), (config, devices)
            larger = [n for n in range(tensor + 1, devices + 1) if devices % n == 0]
            assert not any(accepted(model, n, devices // n) for n in larger), (config, devices)
