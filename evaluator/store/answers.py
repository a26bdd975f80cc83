"""Answers as frames: what a run keeps of what its models said."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from evaluator_serving.answers import Answer, Answers

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
    """Answers as a frame with a row per candidate (columns ANSWERS)."""
    columns = answers if isinstance(answers, Answers) else Answers.of(answers)
    lengths, counts = columns.tokens.lengths, np.diff(columns.candidates)
    if not len(lengths):
        return pl.DataFrame(schema=ANSWERS)
    whose = np.repeat(np.arange(len(counts)), counts)
    frame = pl.DataFrame(
        {
            "request": pl.Series(columns.requests, dtype=pl.String).gather(whose),
            "candidate": (np.arange(len(whose)) - columns.candidates[whose]).astype(np.int32),
            "begin": columns.tokens.offsets[:-1],
            "length": lengths,
        }
    )
    flat = {"tokens": columns.tokens.flat.astype(np.int32), "logprobs": columns.logprobs.flat}
    # A candidate's lists are slices of one list: made one by one they would take most of a worker's time.
    lists = [pl.lit(pl.Series(name, numbers).implode()).list.slice("begin", "length") for name, numbers in flat.items()]
    return frame.select("request", "candidate", *lists)


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
    columns = answers if isinstance(answers, Answers) else Answers.of(answers)
    frames = {CHAT: replies_frame}
    return {kind: frames.get(kind, answers_frame)(columns.of_kind(kind)) for kind in dict.fromkeys(columns.kinds)}
