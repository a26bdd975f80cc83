"""What the metadata and tensors of a GGUF file say of the model: the configuration that follows from them, or a refusal.

transformers' own conversion reads some of a file's keys and skips the rest silently. Here every key is in a table: it sets an
attribute of the configuration, or is known to change nothing, or the file is refused by the key's name. The same holds for
tensors. The facts are those of llama.cpp, whose converter writes these files.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast


class UnusableGgufError(ValueError):
    """A GGUF file whose model would not be the one that it was made from; the message names the key or tensor."""

    def __init__(self, reason: str, remedy: str = "use the model's safetensors weights") -> None:
        super().__init__(f"{reason}: {remedy}")


@dataclass(frozen=True)
class GgufArchitecture:
    """What files of one `general.architecture` hold, and where it belongs.

    Attributes:
        keys: keys (after the architecture's name) that a file must have, and the attributes of the configuration they set.
        tensors: names of the tensors of a block, `.weight` left out.
        ends: the same of the tensors outside of blocks.
        biases: those of both that may have a bias.
        implied: attributes that hold for all files of the architecture.
        head_dim: whether the configuration has `head_dim`; without it, it is the embedding's length over the number of heads.
        rope: how positions are rotated: `full` or `partial` (a part of each head), `None` where they aren't, `own` where
            transformers reads the keys itself.
        theta: base of the rotary frequencies of a file that doesn't have the key; None where it must.
        factors: tensors with factors of the rotary frequencies that a file may have.
    """

    keys: Mapping[str, str]
    tensors: str
    ends: str = "token_embd output_norm output"
    biases: str = ""
    implied: Mapping[str, Any] = field(default_factory=dict)
    head_dim: bool = False
    rope: str | None = "full"
    theta: float | None = 10000.0
    factors: tuple[str, ...] = ()


LLAMA3_FACTORS = "rope_freqs.weight"
LONG_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")

_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_GROUPED = {**_SIZES, "attention.head_count_kv": "num_key_value_heads"}
_RMS = {**_GROUPED, "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_ALL_ROUTED: Mapping[str, Any] = {"decoder_sparse_step": 1, "mlp_only_layers": []}
_ATTENTION = "attn_norm attn_q attn_k attn_v attn_output ffn_norm "
_QKV = "attn_q attn_k attn_v"
_NORMS = "attn_norm ffn_norm output_norm "
_GATED = "ffn_gate ffn_up ffn_down"
_ROUTED = "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps"
_GEMMA = _ATTENTION + _GATED + " post_attention_norm post_ffw_norm"
_LINEAR = "attn_norm post_attention_norm attn_q attn_k attn_v attn_output attn_q_norm attn_k_norm " + (
    "attn_qkv attn_gate ssm_alpha ssm_beta ssm_conv1d ssm_norm ssm_out ssm_a ssm_dt "
)
_QWEN35 = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
}

ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture(
        _RMS,
        _ATTENTION + _GATED,
        head_dim=True,
        factors=(LLAMA3_FACTORS,),
        biases=_QKV + " attn_output ffn_gate ffn_up ffn_down",
    ),
    "qwen2": GgufArchitecture(_RMS, _ATTENTION + _GATED, implied={"use_sliding_window": False}, biases=_QKV),
    "qwen2moe": GgufArchitecture(
        {**_RMS, **_EXPERTS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        _ATTENTION + _ROUTED + " ffn_gate_inp_shexp ffn_gate_shexp ffn_up_shexp ffn_down_shexp",
        implied={"norm_topk_prob": False, **_ALL_ROUTED},
        biases=_QKV,
    ),
    "qwen3": GgufArchitecture(
        _RMS, _ATTENTION + _GATED + " attn_q_norm attn_k_norm", head_dim=True, biases=_QKV + " attn_output"
    ),
    "qwen3moe": GgufArchitecture(
        {**_RMS, **_EXPERTS},
        _ATTENTION + _ROUTED + " attn_q_norm attn_k_norm",
        implied={"norm_topk_prob": True, **_ALL_ROUTED},
        head_dim=True,
        biases=_QKV + " attn_output",
    ),
    "qwen35": GgufArchitecture(
        {**_QWEN35, "feed_forward_length": "intermediate_size"}, _LINEAR + _GATED, rope="own", biases="ssm_dt"
    ),
    "qwen35moe": GgufArchitecture(
        {**_QWEN35, **_EXPERTS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        _LINEAR + _ROUTED + " ffn_gate_inp_shexp ffn_gate_shexp ffn_up_shexp ffn_down_shexp",
        rope="own",
        biases="ssm_dt",
    ),
    "gemma2": GgufArchitecture(
        {**_RMS, "attention.sliding_window": "sliding_window"}, _GEMMA, "token_embd output_norm", head_dim=True
    ),
    "gemma3": GgufArchitecture(
        {**_RMS, "attention.sliding_window": "sliding_window"},
        _GEMMA + " attn_q_norm attn_k_norm",
        head_dim=True,
        theta=None,
    ),
    "phi3": GgufArchitecture(
        _RMS, "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down", rope="partial", factors=LONG_FACTORS
    ),
    "falcon": GgufArchitecture(
        {**_SIZES, "feed_forward_length": "ffn_hidden_size", "attention.layer_norm_epsilon": "layer_norm_epsilon"},
        "attn_norm attn_qkv attn_output ffn_up ffn_down",
        implied={"multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False},
        biases="attn_norm output_norm",
    ),
    "bloom": GgufArchitecture(
        {
            "embedding_length": "hidden_size",
            "block_count": "n_layer",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down",
        "token_embd token_embd_norm output_norm output",
        rope=None,
        biases=_NORMS + "attn_qkv attn_output ffn_up ffn_down token_embd_norm",
    ),
    "gpt2": GgufArchitecture(
        {
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down",
        "token_embd position_embd output_norm output",
        rope=None,
        biases=_NORMS + "attn_qkv attn_output ffn_up ffn_down",
    ),
    "starcoder2": GgufArchitecture(
        {**_GROUPED, "attention.layer_norm_epsilon": "norm_epsilon"},
        _ATTENTION + "ffn_up ffn_down",
        implied={"use_bias": True},
        biases=_NORMS + _QKV + " attn_output ffn_up ffn_down",
    ),
    "stablelm": GgufArchitecture(
        {**_GROUPED, "attention.layer_norm_epsilon": "layer_norm_eps"},
        _ATTENTION + _GATED,
        rope="partial",
        biases=_NORMS + _QKV,
    ),
    "nemotron": GgufArchitecture(
        {**_GROUPED, "attention.layer_norm_epsilon": "norm_eps"},
        _ATTENTION + "ffn_up ffn_down",
        head_dim=True,
        rope="partial",
        biases=_NORMS + _QKV + " attn_output ffn_up ffn_down",
    ),
    "mamba": GgufArchitecture(
        {
            "embedding_length": "hidden_size",
            "block_count": "num_hidden_layers",
            "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
            "ssm.conv_kernel": "conv_kernel",
            "ssm.state_size": "state_size",
            "ssm.time_step_rank": "time_step_rank",
            "ssm.inner_size": "intermediate_size",
        },
        "attn_norm ssm_in ssm_conv1d ssm_x ssm_dt ssm_a ssm_d ssm_out",
        rope=None,
        biases="ssm_conv1d ssm_dt",
    ),
    "lfm2": GgufArchitecture(
        {**_SIZES, "attention.layer_norm_rms_epsilon": "norm_eps", "shortconv.l_cache": "conv_L_cache"},
        _ATTENTION + _GATED + " attn_q_norm attn_k_norm shortconv.conv shortconv.in_proj shortconv.out_proj",
        "token_embd token_embd_norm output",
        implied={"conv_bias": False, "block_auto_adjust_ff_dim": False},
        theta=None,
    ),
}
"""The architectures that can be read, by the name that files give. transformers knows a few more; see `docs/engines.md`."""

_HARMLESS = re.compile(
    r"GGUF\..*|general\..*|quantize\..*|imatrix\..*|mradermacher\..*|split\.(no|count|tensors\.count)"
    r"|[\w-]+\.(vocab_size|pooling_type|tensor_data_layout|rope\.scaling\.finetuned)"
)
"""Keys that say nothing of the model's numbers, or what the tensors say too."""

_NEUTRAL: Mapping[str, Collection[Any]] = {
    "attention.causal": (True,),
    "attention.scale": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.sliding_window": (0,),
    "attention.temperature_scale": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "router_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "residual_scale": (0, 1),
    "logit_scale": (0, 1),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_weights_scale": (0, 1),
    "nextn_predict_layers": (0,),
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0, 1),
    "rope.scaling.alpha": (0, 1),
    "rope.scaling.attn_factor": (0, 1),
    "rope.scaling.yarn_attn_factor": (0, 1),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
    "rope.scale_linear": (0, 1),
    "ssm.dt_b_c_rms": (False,),
    "feed_forward_length": (0,),
    "attention.head_count": (0,),
    "attention.head_count_kv": (0,),
    "expert_gating_func": (1,),
}
"""Keys that change nothing at these values, where no rule below has read them."""


def weights(meta: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of a file's tensors that are weights of the model."""
    own = _Keys.of(meta)
    return [name for name in names if name not in (LLAMA3_FACTORS, *LONG_FACTORS) and not own.predicts_ahead(name)]


def attributes(meta: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], factors: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a transformers configuration has to have for the model in a file.

    `meta` are its keys and values, `shapes` its tensors' (as torch has them), `factors` the values of tensors that aren't
    weights (LLAMA3_FACTORS, LONG_FACTORS). Raises UnusableGgufError for what would be lost.
    """
    name = str(meta.get("general.architecture"))
    _refuse_other_files(meta, name)
    architecture = ARCHITECTURES[name]
    own = _Keys.of(meta)
    values: dict[str, Any] = {"vocab_size": _rows(shapes), **architecture.implied}
    for key, attribute in architecture.keys.items():
        default = [values["num_attention_heads"]] if key == "attention.head_count_kv" else []
        values[attribute] = own.take(key, *default)
        if isinstance(values[attribute], list):  # one for each block
            raise own.refused(key)
    values["tie_word_embeddings"] = "output.weight" not in shapes
    if architecture.rope in ("full", "partial"):
        _rotary(architecture, own, factors, values)
    if rule := _RULES.get(name):
        rule(own, shapes, values)
    own.check()
    unknown = [key for key in meta if not key.startswith((f"{name}.", "tokenizer.")) and not _HARMLESS.fullmatch(key)]
    if unknown:
        raise _refused(f"the key {unknown[0]}")
    _check_tensors(architecture, own, shapes)
    return values


class _Keys:
    """An architecture's keys, of which each has to be taken or be at a value that changes nothing."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values, self.name, self._taken = values, name, set[str]()

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "_Keys":
        name = str(meta.get("general.architecture"))
        return cls({key.removeprefix(f"{name}."): value for key, value in meta.items() if key.startswith(f"{name}.")}, name)

    def take(self, key: str, *default: Any) -> Any:
        self._taken.add(key)
        if key in self.values:
            return self.values[key]
        if default:
            return default[0]
        raise UnusableGgufError(f"the key {self.name}.{key} is missing and has no default")

    def require(self, key: str, *expected: Any) -> None:
        if key in self.values and self.take(key) not in expected:
            raise self.refused(key)

    def refused(self, key: str) -> UnusableGgufError:
        return _refused(f"the key {self.name}.{key} ({str(self.values[key])[:40]})")

    def predicts_ahead(self, tensor: str) -> bool:
        """Whether a tensor is of the blocks after the model's own, which guess several tokens at once (Qwen 3.5)."""
        block = re.match(r"blk\.(\d+)\.", tensor)
        own = self.values["block_count"] - self.values.get("nextn_predict_layers", 0)
        return block is not None and own <= int(block[1]) < self.values["block_count"]

    def check(self) -> None:
        for key, value in self.values.items():
            harmless = key in _NEUTRAL and value in _NEUTRAL[key]
            if key not in self._taken and not harmless and not _HARMLESS.fullmatch(f"{self.name}.{key}"):
                raise self.refused(key)


def _refused(what: str) -> UnusableGgufError:
    return UnusableGgufError(f"{what} is not supported, and the model would be wrong without it")


def _refuse_other_files(meta: Mapping[str, Any], name: str) -> None:
    parts = meta.get("split.count", 0)
    if parts > 1:
        raise UnusableGgufError(
            f"it is one of {parts} parts (split.count)",
            "merge them with llama-gguf-split --merge and give the result",
        )
    if name == "clip" or meta.get("general.type") in ("mmproj", "adapter"):
        kind = "an adapter" if meta.get("general.type") == "adapter" else "the vision or audio part of a model (mmproj)"
        raise UnusableGgufError(f"it holds {kind}", "give the file with the language model")
    if name not in ARCHITECTURES:
        raise UnusableGgufError(f"general.architecture is {name!r}, and only {', '.join(ARCHITECTURES)} are read from GGUF")


def _rows(shapes: Mapping[str, Sequence[int]]) -> int:
    if "token_embd.weight" not in shapes:
        raise UnusableGgufError("the tensor token_embd.weight is missing, so the file does not contain a complete model")
    return int(shapes["token_embd.weight"][0])


def _check_tensors(architecture: GgufArchitecture, own: _Keys, shapes: Mapping[str, Sequence[int]]) -> None:
    blocks = int(own.values["block_count"])
    inside, outside, biased = (set(names.split()) for names in (architecture.tensors, architecture.ends, architecture.biases))
    for name in shapes:
        if name in architecture.factors or own.predicts_ahead(name):
            continue
        if name.startswith(("v.", "mm.", "a.")):
            raise _refused(f"the tensor {name} (of a vision or audio part)")
        block, short, end = cast(re.Match[str], re.fullmatch(r"(?:blk\.(\d+)\.)?(.+?)(\.weight|\.bias)?", name)).groups()
        known = short in inside and int(block) < blocks if block else short in outside
        if not known or (end == ".bias" and short not in biased):
            raise _refused(f"the tensor {name}")


# --- positions ----------------------------------------------------------------------------------------------------


def _rotary(architecture: GgufArchitecture, own: _Keys, factors: Mapping[str, Any], values: dict[str, Any]) -> None:
    plain = values["hidden_size"] // values["num_attention_heads"]
    head = own.take("attention.key_length", plain)
    own.require("attention.value_length", head)
    if architecture.head_dim:
        values["head_dim"] = head
    elif head != plain:
        raise own.refused("attention.key_length")
    turned = own.take("rope.dimension_count", head)
    for name, each in factors.items():
        if name in architecture.factors and len(each) != turned // 2:
            raise _refused(f"the tensor {name} ({len(each)} factors for {turned // 2} frequencies)")
    theta = own.take("rope.freq_base", *([] if architecture.theta is None else [architecture.theta]))
    rope = {"rope_theta": theta, **_scaling(own, factors, values, theta)}
    if architecture.rope == "partial":
        rope["partial_rotary_factor"] = turned / head
    elif turned != head:
        raise own.refused("rope.dimension_count")
    values["rope_parameters"] = rope


def _scaling(own: _Keys, factors: Mapping[str, Any], values: Mapping[str, Any], theta: float) -> dict[str, Any]:
    """How the rotary frequencies are changed for longer contexts, as transformers' `rope_parameters` say it."""
    context = values["max_position_embeddings"]
    before = own.take("rope.scaling.original_context_length", context)
    factor = own.take("rope.scaling.factor", 0) or own.take("rope.scale_linear", 0) or 1.0
    kind = own.take("rope.scaling.type", "linear")
    if missing := [name for name in LONG_FACTORS if name not in factors]:
        if len(missing) < len(LONG_FACTORS) or kind == "longrope":
            raise UnusableGgufError(f"the tensor {missing[0]} is missing, which LongRoPE's frequencies need")
    else:
        own.require("rope.scaling.factor", 0, 1)
        if kind not in ("linear", "none", "longrope"):
            raise own.refused("rope.scaling.type")
        scale = context / before
        usual = math.sqrt(1 + math.log(scale) / math.log(before)) if scale > 1 else 1.0
        short, long = (list(map(float, factors[name])) for name in LONG_FACTORS)
        return {
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "attention_factor": own.take("rope.scaling.attn_factor", 0) or usual,
            "original_max_position_embeddings": before,
        }
    if kind not in ("none", "linear", "yarn"):
        raise own.refused("rope.scaling.type")
    scaled = factor != 1 and kind != "none"
    if LLAMA3_FACTORS in factors:
        if scaled:
            raise _refused(f"the tensor {LLAMA3_FACTORS} together with {own.name}.rope.scaling.factor")
        return _per_frequency([float(one) for one in factors[LLAMA3_FACTORS]], theta, context)
    if kind == "yarn" and "rope.scaling.factor" not in own.values:
        own.take("rope.scaling.factor")  # says that it is missing
    if not scaled:
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    bounds = {name: own.take(f"rope.scaling.yarn_{name}", None) for name in ("beta_fast", "beta_slow")}
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": before,
        **{name: value for name, value in bounds.items() if value},
    }


def _per_frequency(factors: Sequence[float], theta: float, context: int) -> dict[str, Any]:
    """A divisor for every frequency: Llama 3's own rule where its usual numbers give these, else the divisors themselves."""
    if all(one == 1 for one in factors):
        return {"rope_type": "default"}
    usual: dict[str, Any] = {
        "factor": max(factors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(factors, _llama3(len(factors), theta, **usual), strict=True)):
        return {"rope_type": "llama3", **usual}
    # LongRoPE's form with one set of factors for all lengths: nothing turns at `original_max_position_embeddings`.
    return {
        "rope_type": "longrope",
        "short_factor": list(factors),
        "long_factor": list(factors),
        "attention_factor": 1.0,
        "original_max_position_embeddings": context,
    }


def _llama3(
    count: int,
    theta: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> list[float]:
    """What Llama 3's rule divides each of `count` frequencies by."""
    turns = [original_max_position_embeddings * theta ** (-i / count) / (2 * math.pi) for i in range(count)]
    kept = [min(max((turn - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0), 1.0) for turn in turns]
    return [1 / ((1 - share) / factor + share) for share in kept]


# --- what is special to an architecture -----------------------------------------------------------------------------


def _biases(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    _qwen3(own, shapes, values)
    values["mlp_bias"] = any(f"blk.0.{name}.bias" in shapes for name in ("ffn_gate", "ffn_up", "ffn_down"))


def _qwen3(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    values["attention_bias"] = any(f"blk.0.{name}.bias" in shapes for name in (*_QKV.split(), "attn_output"))


def _routed(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    values["norm_topk_prob"] = own.take("expert_weights_norm", values["norm_topk_prob"])
    if own.name == "qwen3moe":
        _qwen3(own, shapes, values)


def _qwen35(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    for key in ("rope.freq_base", "rope.dimension_count", "rope.dimension_sections"):  # transformers reads them as they are
        own.take(key)
    own.take("feed_forward_length", 0)
    own.require("attention.value_length", values["head_dim"])
    values["num_hidden_layers"] = own.take("block_count") - own.take("nextn_predict_layers", 0)
    values["linear_value_head_dim"] = own.take("ssm.inner_size") // values["linear_num_value_heads"]
    interval = own.take("full_attention_interval")
    values["layer_types"] = [
        "linear_attention" if (i + 1) % interval else "full_attention" for i in range(values["num_hidden_layers"])
    ]


def _gemma(own: _Keys, values: dict[str, Any], largest: int) -> None:
    """The scale of attention isn't in the file: it follows from the heads, in another way for the largest model."""
    by_heads = values["hidden_size"] // values["num_attention_heads"]
    values["query_pre_attn_scalar"] = by_heads if values["num_hidden_layers"] == largest else values["head_dim"]


def _gemma2(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    _gemma(own, values, largest=46)
    values["attn_logit_softcapping"] = own.take("attn_logit_softcapping", 50.0) or None
    values["final_logit_softcapping"] = own.take("final_logit_softcapping", 30.0) or None
    values["layer_types"] = _windows(own, 2, values["num_hidden_layers"])


def _gemma3(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    _gemma(own, values, largest=62)
    values["final_logit_softcapping"] = own.take("final_logit_softcapping", 0) or None
    values["layer_types"] = _windows(own, 6, values["num_hidden_layers"])
    local = {"rope_theta": own.take("rope.freq_base_swa", 10000.0), "rope_type": "default"}
    values["rope_parameters"] = {"sliding_attention": local, "full_attention": values["rope_parameters"]}


def _windows(own: _Keys, usual: int, layers: int) -> list[str]:
    """The kinds of layers: of every `pattern` the last sees everything, or each as it is listed."""
    pattern: int | Sequence[bool] = own.take("attention.sliding_window_pattern", usual)
    if not isinstance(pattern, int) and len(pattern) != layers:
        raise own.refused("attention.sliding_window_pattern")
    local = [bool((i + 1) % pattern) for i in range(layers)] if isinstance(pattern, int) else list(pattern)
    return ["sliding_attention" if one else "full_attention" for one in local]


def _phi3(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    values["sliding_window"] = own.take("attention.sliding_window", 0) or None
    kind = values["rope_parameters"]["rope_type"]
    if kind not in ("default", "longrope"):  # transformers' Phi-3 has no others
        raise own.refused(next(key for key in ("rope.scaling.factor", "rope.scale_linear") if key in own.values))
    if kind == "longrope":
        values["original_max_position_embeddings"] = values["rope_parameters"]["original_max_position_embeddings"]


def _falcon(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    own.require("attention.head_count_kv", 1)  # otherwise heads are in an order that the conversion doesn't restore


def _bloom(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    own.take("context_length", 0)  # its positions have no end
    own.require("attention.head_count_kv", values["n_head"])
    own.require("feed_forward_length", 4 * values["hidden_size"])


def _gpt2(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    inner = own.take("feed_forward_length")
    values["n_inner"] = None if inner == 4 * values["n_embd"] else inner
    own.require("attention.head_count_kv", values["n_head"])


def _stablelm(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    values["use_qkv_bias"] = "blk.0.attn_q.bias" in shapes
    values["use_parallel_residual"] = "blk.0.ffn_norm.weight" not in shapes
    own.take("use_parallel_residual", None)  # the converter writes it for models without, too; the tensors tell


def _mamba(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    own.take("context_length", 0)
    if values["intermediate_size"] % values["hidden_size"]:
        raise own.refused("ssm.inner_size")
    values["expand"] = values["intermediate_size"] // values["hidden_size"]


def _lfm2(own: _Keys, shapes: Mapping[str, Any], values: dict[str, Any]) -> None:
    heads = own.take("attention.head_count_kv")
    if not isinstance(heads, list) or len(set(heads) - {0}) != 1:
        raise own.refused("attention.head_count_kv")
    values["num_key_value_heads"] = max(heads)
    values["layer_types"] = ["full_attention" if count else "conv" for count in heads]


_RULES: Mapping[str, Any] = {
    "llama": _biases,
    "nemotron": _biases,
    "qwen3": _qwen3,
    "qwen2moe": _routed,
    "qwen3moe": _routed,
    "qwen35": _qwen35,
    "qwen35moe": _qwen35,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": _phi3,
    "falcon": _falcon,
    "bloom": _bloom,
    "gpt2": _gpt2,
    "stablelm": _stablelm,
    "mamba": _mamba,
    "lfm2": _lfm2,
}
