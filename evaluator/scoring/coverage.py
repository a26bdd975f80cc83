"""How much of a task's texts a model's tokenizer knows: counted while the requests are encoded."""

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluator_serving.table import EncodedTable


def tokens_of_task(table: pl.DataFrame, encoded: EncodedTable) -> dict[str, Any]:
    """`text_tokens` of a task's requests (`table`: Rendered.table) that were encoded now; where the task has several languages,
    those of each besides (`languages`)."""

    position = encoded.position
    places = pl.Series("place", [position.get(request, -1) for request in table["request"]], dtype=pl.Int64)
    asked = table.select("language").with_columns(places).unique(maintain_order=True)

    def counted(rows: pl.DataFrame) -> dict[str, Any]:
        return text_tokens(encoded, rows["place"].filter(rows["place"] >= 0).to_numpy())

    counts = counted(asked.unique("place", maintain_order=True))
    parts = asked.partition_by("language", as_dict=True, maintain_order=True)
    if len(parts) > 1:
        counts["languages"] = {str(language): counted(rows) for (language,), rows in parts.items()}
    return counts


def text_tokens(encoded: EncodedTable, which: NDArray[np.intp]) -> dict[str, Any]:
    """Counts over the requests of one task (their places in a table), for its model's entry in run.json.

    `tokens` of their texts; `unknown` and `byte_pieces` among them (see `Coverage`) and both as shares of the tokens;
    `requests`, `incomplete` of which hold an unknown token, and `alike`: incomplete ones that became the same input as another.
    """
    coverage = encoded.columns.coverage[which]
    tokens, unknown, byte_pieces = coverage.sum(0, dtype=np.int64).tolist()
    incomplete = which[coverage[:, 1] > 0]
    inputs = Counter((item.rows, item.candidates) for item in encoded.take(incomplete))
    return {
        "tokens": tokens,
        "unknown": unknown,
        "unknown_share": unknown / max(tokens, 1),
        "byte_pieces": byte_pieces,
        "byte_pieces_share": byte_pieces / max(tokens, 1),
        "requests": len(which),
        "incomplete": len(incomplete),
        "alike": sum(count for count in inputs.values() if count > 1),
    }
