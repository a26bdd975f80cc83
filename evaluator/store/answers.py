"""Answers as frames: what a run keeps of what its models said."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from evaluator_serving.answers import Answer

ANSWERS: dict[str, pl.DataType] = {
    "request": pl.String(),
    "candidate": pl.Int32(),
    "tokens": pl.List(pl.Int32()),
    "logprobs": pl.List(pl.Float64()),
}
REPLIES: dict[str, pl.DataType] = {
    "text": pl.String(),
    "finish": pl.String(),
    "prompt_tokens": pl.Int64(),
    "answer_tokens": pl.Int64(),
    "thought": pl.String(),
    "served": pl.String(),
    "system": pl.String(),
    "date": pl.String(),
}
"""Columns of the answers to chats besides ANSWERS (there a candidate is one of the replies, without log-probabilities): see
`evaluator_serving.chats.Reply`."""
CHAT = "chat"
"""The kind of request whose parts have REPLIES."""


def answers_frame(answers: Iterable[Answer]) -> pl.DataFrame:
    """Answers as a frame with a row per candidate (columns ANSWERS).

    Lists are gathered from flat columns: made one by one they would keep a sweep's driver busy, and its devices waiting.
    """
    rows = [
        (a.request, i, tokens, logprobs)
        for a in answers
        for i, (tokens, logprobs) in enumerate(zip(a.tokens, a.logprobs, strict=True))
    ]
    lengths = np.fromiter((len(tokens) for *_, tokens, _ in rows), np.int64)
    flat = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(rows)), lengths),
            "tokens": np.fromiter((token for *_, tokens, _ in rows for token in tokens), np.int32),
            "logprobs": np.fromiter((number for *_, logprobs in rows for number in logprobs), np.float64),
        }
    )
    named = pl.DataFrame(
        {"request": [row[0] for row in rows], "candidate": [row[1] for row in rows], "row": np.arange(len(rows))},
        schema={"request": pl.String, "candidate": pl.Int32, "row": pl.Int64},
    )
    lists = flat.group_by("row", maintain_order=True).agg("tokens", "logprobs")
    joined = named.join(lists, on="row", how="left", maintain_order="left")
    # A candidate without tokens has no row in `flat`.
    filled = [pl.col(name).fill_null(pl.lit([], ANSWERS[name])) for name in ("tokens", "logprobs")]
    return joined.select("request", "candidate", *filled)


def replies_frame(answers: Iterable[Answer]) -> pl.DataFrame:
    """Answers to chats as a frame with a row a reply (columns ANSWERS and REPLIES)."""
    rows = [
        (a.request, i, list(reply.tokens), [], *(getattr(reply, name) for name in REPLIES))
        for a in answers
        for i, reply in enumerate(a.replies)
    ]
    return pl.DataFrame(rows, schema=ANSWERS | REPLIES, orient="row")


def frames_by_kind(answers: Iterable[Answer]) -> dict[str, pl.DataFrame]:
    """Kind of request → its answers as a frame."""
    by_kind: dict[str, list[Answer]] = {}
    for answer in answers:
        by_kind.setdefault(answer.kind, []).append(answer)
    return {kind: replies_frame(group) if kind == CHAT else answers_frame(group) for kind, group in by_kind.items()}
