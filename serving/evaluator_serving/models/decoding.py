"""What a model's generation_config.json says of how tokens are chosen. It is applied only if that is asked for.

Its end tokens always count (see `models.speech`). Temperature, number and length of answers are the request's own.
"""

from collections.abc import Mapping
from typing import Any

from evaluator_serving.errors import InputError, first_line
from evaluator_serving.models.source import ModelSource

OPTION = "generation_config"
"""Name of the engines' option; its only value is `model`."""

CUTS = ("top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
"""Settings that matter to drawn answers alone, in the order in which transformers applies them."""
PENALTIES = frozenset(
    {
        *("repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
        *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "min_length", "min_new_tokens"),
        *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"),
    }
)
"""Settings that change which token is the most probable one."""
_ALWAYS_OURS = frozenset(
    {"repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "min_length", "min_new_tokens"}
)
"""Those that no version of this program has taken from the file unasked."""


def authors_config(source: ModelSource) -> Any:
    """generation_config.json as transformers reads it, or its defaults. Raises InputError for unusable values."""
    from transformers import GenerationConfig

    try:
        config = GenerationConfig.from_pretrained(source.path, local_files_only=True)
    except OSError:
        return GenerationConfig()
    except Exception as error:  # whatever transformers' checks of the values raise
        raise _unusable(source, first_line(error)) from error
    ends = config.eos_token_id
    if not all(isinstance(end, int) for end in (ends if isinstance(ends, list) else [ends] if ends is not None else [])):
        raise _unusable(source, f"eos_token_id is {ends!r}")
    return config


def _unusable(source: ModelSource, reason: str) -> InputError:
    return InputError(f"model {source.spec}: its generation_config.json can't be used ({reason}): correct or remove it")


def recommended(source: ModelSource) -> dict[str, Any]:
    """The settings of a model's authors that can be applied: name to value, without those that change nothing."""
    from transformers import GenerationConfig

    config = authors_config(source)
    usual = GenerationConfig._get_default_generation_params()
    usual["top_k"] = 0
    found = {name: getattr(config, name, None) for name in (*CUTS, *sorted(PENALTIES))}
    return {name: value for name, value in found.items() if value is not None and value != usual.get(name)}


def decoding_record(source: ModelSource, engine: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """For the record of answers in words: `applied` or `ignored` settings; empty where there are none.

    `before`: those that earlier versions of this program applied unasked, so that their answers are others.
    """
    values = {} if source.served else recommended(source)
    if not values or OPTION in extra:
        return {"applied": values} if values else {}
    before = sorted(values.keys() & (PENALTIES - _ALWAYS_OURS)) if engine == "transformers" else []
    return {"ignored": values, **({"before": before} if before else {})}
