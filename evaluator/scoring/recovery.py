"""What a run has of a model before it is asked for more: answers that no chunk was stored with, and a few to ask again.

A server's model is known by its name alone: whether the weights behind it are still the same is seen by asking again.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from evaluator.journal import Journal
from evaluator.scoring.prepared_model import PreparedModel
from evaluator.scoring.score import StoredAnswers
from evaluator.store.answers import frames_by_kind
from evaluator.store.run import Run
from evaluator_serving.answers import Values, assemble
from evaluator_serving.chunks import make_chunk
from evaluator_serving.registry import engine_class
from evaluator_serving.rows import Encoded, EncodedCandidate, Read, Row

FEW = 12
"""Requests that are asked again."""
LOOKED_AT = 1000
"""Answered requests that these are chosen from, at most."""


def recover(run: Run, model: PreparedModel) -> None:
    """Store the answers that are in a model's journal and in no chunk: its process was ended before the chunk was whole."""
    path = run.journal(model.name)
    if model.encoded and path.is_file():
        done, journal = run.done(model.name), Journal(path)
        left = model.encoded.only([request for request in model.encoded.requests if request not in done])
        found = [(item, _journal_values(item, journal)) for item in left]
        answers = [answer for item, values in found if values for answer in assemble(make_chunk([item]), values)]
        run.add_answers(run.answers_folder(model.name), frames_by_kind(answers))


def _journal_values(item: Encoded, journal: Journal) -> list[Values] | None:
    """What the journal has for every row of a request's chunk; None where anything is missing."""
    made: list[Values] = []
    for row in make_chunk([item]).rows:
        if row.chat:
            replies = [reply for one in row.chat.single() if (reply := journal.get(one))]
            if len(replies) < row.chat.answers:
                return None
            made.append(tuple(replies))
        else:
            numbers = [number for at, token in row.lookups if (number := journal.logprob(row.ids[: at + 1], token)) is not None]
            if len(numbers) < len(row.lookups):
                return None
            made.append(np.array(numbers, dtype=np.float32))
    return made


def answers_to_repeat(run: Run, model: PreparedModel) -> StoredAnswers:
    """A few requests that a server's model has answered in this run; none where the weights are known by their content."""
    if engine_class(model.info.engine).reads_weights:
        return StoredAnswers()
    done = run.done(model.name)
    asked = [request for request in model.encoded.requests if request in done] if done else []
    answered = model.encoded.only(asked[:: max(1, len(asked) // LOOKED_AT)])
    items = _few([item for item in answered if item.candidates])
    if items:
        stored = run.answers(model.name).filter(pl.col("request").is_in([item.request for item in items]))
        said = {(row["request"], row["candidate"]): tuple(row["logprobs"]) for row in stored.iter_rows(named=True)}
        logprobs = tuple(tuple(said[item.request, i] for i in range(len(item.candidates))) for item in items)
        return StoredAnswers(tuple(items), logprobs)
    # All that is asked now is new (another task): what was kept one by one says what was asked for.
    numbers = {
        Encoded("", (Row("causal", p, ((len(p) - 1, token),)),), (EncodedCandidate((token,), (Read(0, 0),)),)): ((value,),)
        for p, token, value in Journal(run.journal(model.name)).logprobs()
    }
    items = _few(list(numbers))
    return StoredAnswers(tuple(items), tuple(numbers[item] for item in items))


def _few(items: Sequence[Encoded]) -> list[Encoded]:
    """Some requests with short, middling and long rows."""
    ordered = sorted(items, key=lambda item: (max(row.length for row in item.rows), item.request))
    return ordered[:: max(1, len(ordered) // FEW)][:FEW]
