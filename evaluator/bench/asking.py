"""An engine of this program asked by the way that a run takes: encode, merge, cut into chunks, score."""

from collections.abc import Callable, Sequence

from evaluator.bench.counter import Counter
from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Request


def opened(
    name: str, source: ModelSource, options: EngineOptions, known: Sequence[Request], counter: Counter
) -> Callable[[Sequence[Request]], list[list[float]]]:
    """Load an engine for requests such as `known`, and count in it. What comes back gives each request's log P by candidate."""
    from evaluator_serving.answers import assemble
    from evaluator_serving.encoding import encoder_for
    from evaluator_serving.opening import open_engine
    from evaluator_serving.rows import chunks, merge

    encoder = encoder_for(source)
    engine = open_engine(name, source, options, merge([encoder.encode(request) for request in known]).rows)
    counter.of_engine(engine, source.config.get_text_config().vocab_size)
    tokens = engine.chunk_tokens(source.parameters, engine.device_kind)

    def score(requests: Sequence[Request]) -> list[list[float]]:
        encoded = [encoder.encode(request) for request in requests]
        found = {
            answer.request: [sum(candidate) for candidate in answer.logprobs]
            for chunk in chunks(encoded, tokens=tokens)
            for answer in assemble(chunk, engine.score(chunk.merged.rows))
        }
        return [found[item.request] for item in encoded]

    return score
