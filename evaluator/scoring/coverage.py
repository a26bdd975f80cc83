"""How much of a task's texts a model's tokenizer knows: counted while the requests are encoded."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from evaluator_serving.rows import Coverage, Encoded


def tokens_of_task(table: pl.DataFrame, encoded: Mapping[str, Encoded]) -> dict[str, Any]:
    """`text_tokens` of a task's requests (`table`: Rendered.table) that were encoded now; where the task has several languages,
    those of each besides (`languages`)."""

    def counted(rows: pl.DataFrame) -> dict[str, Any]:
        return text_tokens(encoded[i] for i in rows["request"].unique(maintain_order=True) if i in encoded)

    counts = counted(table)
    parts = table.partition_by("language", as_dict=True, maintain_order=True)
    if len(parts) > 1:
        counts["languages"] = {str(language): counted(rows) for (language,), rows in parts.items()}
    return counts


def text_tokens(requests: Iterable[Encoded]) -> dict[str, Any]:
    """Counts over the requests of one task, for its model's entry in run.json.

    `tokens` of their texts; `unknown` and `byte_pieces` among them (see `Coverage`) and both as shares of the tokens;
    `requests`, `incomplete` of which hold an unknown token, and `alike`: incomplete ones that became the same input as another.
    """
    asked = list(requests)
    incomplete = [item for item in asked if item.coverage.unknown]
    inputs = Counter((item.rows, item.candidates) for item in incomplete)
    total = sum((item.coverage for item in asked), Coverage())
    return {
        "tokens": total.tokens,
        "unknown": total.unknown,
        "unknown_share": total.unknown / max(total.tokens, 1),
        "byte_pieces": total.byte_pieces,
        "byte_pieces_share": total.byte_pieces / max(total.tokens, 1),
        "requests": len(asked),
        "incomplete": len(incomplete),
        "alike": sum(count for count in inputs.values() if count > 1),
    }
