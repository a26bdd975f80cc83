"""Scores of prompts in vLLM's V1 model runner, of the positions only that somebody reads, all requests' together.

V1 gives a prompt's scores from its first computed token on, and one request after the other: a vocabulary of logits and its
softmax for every token of a long beginning of which nothing is wanted, and the whole vocabulary head read from memory anew for
each prompt's few that are. The V2 runner (GPUs) needs none of this: it is told where to begin (`prompt_logprob_start`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

FIRST_READ = "first_position_read"
"""The name in `SamplingParams.extra_args` under which a request says which position of its prompt is the first one read."""

_ROWS = 256
"""Positions whose logits are in memory at once."""


class _Read(NamedTuple):
    """A position that is read: whose it is, where in its prompt, and the row of the step's hidden states."""

    state: Any
    at: int
    row: int


def score_read_positions(worker: Any) -> None:
    """Runs in vLLM's worker: from now on its V1 runner scores prompts by `_prompt_scores`."""
    worker.model_runner._get_prompt_logprobs_dict = partial(_prompt_scores, worker.model_runner)


def _prompt_scores(runner: Any, hidden_states: Any, scheduled: Mapping[str, int]) -> dict[str, Any]:
    """In the place of V1's own: the scores of requests whose prompts end in this step, by request.

    `hidden_states` [tokens of the step, width]; `scheduled`: how many of them are each request's. A step may compute a part of
    a prompt only: what it gives is kept with the request's state until the prompt has ended. Scores at positions before
    `FIRST_READ` stay whatever memory held.
    """
    reads: list[_Read] = []
    ended: dict[str, Any] = {}
    for request in [name for name in runner.num_prompt_logprobs if name in scheduled]:
        state = runner.requests[request]
        assert runner.num_prompt_logprobs[request] == 0, "only the prompt's own tokens are scored"
        last, done = len(state.prompt_token_ids) - 1, state.num_computed_tokens
        if state.in_progress_prompt_logprobs_cpu is None:
            state.in_progress_prompt_logprobs_cpu = _empty(last)
        first = max(done, (state.sampling_params.extra_args or {}).get(FIRST_READ, 0))
        begin = int(runner.query_start_loc.np[runner.input_batch.req_id_to_index[request]]) - done
        reads += [_Read(state, at, begin + at) for at in range(first, min(done + scheduled[request], last))]
        if done + scheduled[request] > last:
            ended[request] = state
    for portion in range(0, len(reads), _ROWS):
        _score(runner, hidden_states, reads[portion : portion + _ROWS])
    found = {request: state.in_progress_prompt_logprobs_cpu for request, state in ended.items()}
    for request, state in ended.items():
        del runner.num_prompt_logprobs[request]
        state.in_progress_prompt_logprobs_cpu = None
    return found


def _empty(positions: int) -> Any:
    """Room for the scores of so many tokens."""
    from vllm.v1.outputs import LogprobsTensors

    return LogprobsTensors.empty_cpu(positions, 1)


def _score(runner: Any, hidden_states: Any, reads: list[_Read]) -> None:
    """Log P of each read position's next token, by vLLM's own softmax, into its request's tensors."""
    import torch

    device = hidden_states.device
    logits = runner.model.compute_logits(hidden_states[torch.tensor([read.row for read in reads], device=device)])
    following = torch.tensor([read.state.prompt_token_ids[read.at + 1] for read in reads], device=device)
    made = runner.sampler.gather_logprobs(runner.sampler.compute_logprobs(logits), 0, following)
    tokens, scores, ranks = made.logprob_token_ids.cpu(), made.logprobs.cpu(), made.selected_token_ranks.cpu()
    for i, (state, at, _) in enumerate(reads):
        table = state.in_progress_prompt_logprobs_cpu
        table.logprob_token_ids[at], table.logprobs[at], table.selected_token_ranks[at] = tokens[i], scores[i], ranks[i]
