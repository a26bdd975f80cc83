"""The openai engine: a model on a running OpenAI-compatible server.

Log-probabilities come from its completions; only vLLM's server returns exact ones. `--model` then names the model for its
tokenizer and configuration (folder or Hub id), and `--extra url=…` the server. Any server's chat completions answer chats; for
a model used only for chats, `--model URL#NAME` is sufficient.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator_serving.budget import Budget
from evaluator_serving.chats import AnswerStore, Reply
from evaluator_serving.checks.verify import TOLERANCE
from evaluator_serving.engine import BYTES, DeviceKind, Engine, EngineOptions, Extra
from evaluator_serving.errors import EngineError, FailingError, InputError, NotNowError
from evaluator_serving.models.served import checked_host
from evaluator_serving.models.source import ModelSource, Served
from evaluator_serving.openai_engine.chat import Conversation
from evaluator_serving.openai_engine.client import Client, Patience, ServerError, told_error
from evaluator_serving.openai_engine.costs import FREE, CostMeter, Prices
from evaluator_serving.rows import Head, Row, Workload
from evaluator_serving.vllm_engine.plan import Cell, Query, plan

_PROMPTS_A_REQUEST = 32
"""Most prompts of one HTTP request; prompts whose parameters are the same (all of a GEST template's) travel together."""

_Job = tuple[int, Query]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The engine's own options.

    Attributes:
        url: the server's base URL, including `/v1`.
        served_model: the model's name on the server; None if it serves only one.
        concurrency: maximum HTTP requests in flight.
        patience: retries and timeouts.
        key_name: environment variable of the key.
        prices, purse: token prices, and the budget.
        omit: fields of a chat request that the server rejects.
        headers: custom headers, and the environment variables of their values.
    """

    url: str
    served_model: str | None
    concurrency: int
    patience: Patience
    key_name: str = "OPENAI_API_KEY"
    prices: Prices = FREE
    budget: Budget = field(default_factory=lambda: Budget(None))
    omit: frozenset[str] = frozenset()
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, options: EngineOptions, served: Served | None = None) -> "ServerSettings":
        """From the run's options and the model's server. Raises InputError for missing or invalid ones."""
        extra = dict(options.extra)
        if served and (twice := [name for name in ("url", "served_model") if name in extra]):
            raise InputError(f"extra option {twice[0]} is given twice: --model URL#NAME says it")
        url = served.url if served else extra.pop("url", None)
        if not isinstance(url, str) or not url.startswith(("http://", "https://")) or not checked_host(url):
            raise InputError("the openai engine needs the server's URL: --extra url=http://127.0.0.1:8000/v1")
        usual = Patience()
        limit = extra.pop("max_cost", None)
        prices = _prices(extra)
        if limit is not None and not (prices.prompt or prices.answer):
            raise InputError(
                "a limit on the cost needs prices: --extra prompt_price=… --extra answer_price=… (US dollars a million tokens)"
            )
        settings = cls(
            url=url,
            served_model=served.name if served else extra.pop("served_model", None),
            key_name=str(extra.pop("key_env", "OPENAI_API_KEY")),
            prices=prices,
            budget=limit if isinstance(limit, Budget) else Budget(None if limit is None else _dollars("max_cost", limit)),
            omit=_omitted(str(extra.pop("omit", ""))),
            headers=_headers(str(extra.pop("header", ""))),
            concurrency=_number(extra, "concurrency", 32, int),
            patience=Patience(
                retries=_number(extra, "retries", usual.retries, int),
                timeout=_number(extra, "timeout", usual.timeout, float),
            ),
        )
        return settings


class OpenAIEngine(Engine):
    """A causal language model on a completions server that takes token ids and returns their log-probabilities, and one that
    answers chats.

    `dtype` is the server's, which cannot be queried. Causality is checked as for any engine (see `causality`). The API key is
    read from OPENAI_API_KEY. Raises InputError if the server cannot be reached, serves another model, has too short a context
    for a row, or does not return exact log-probabilities.
    """

    name = "openai"
    summary = "generative models at an OpenAI-compatible server: chats; log-probabilities with vLLM's own server"
    heads = frozenset[Head]({"causal", "chat"})
    dtypes = tuple(BYTES)
    devices: ClassVar[tuple[DeviceKind, ...]] = ("server",)
    extra = (
        Extra("url", "the server's base URL, /v1 included"),
        Extra("served_model", "the model's name at the server, where it serves several"),
        Extra("concurrency", "maximum number of HTTP requests in flight [32]", harmless=True),
        Extra("retries", "maximum number of retries per request", harmless=True),
        Extra("timeout", "timeout of a request in seconds", harmless=True),
        Extra("key_env", "the environment variable that holds the API key [OPENAI_API_KEY]", harmless=True),
        Extra("header", "headers with values from the environment: NAME=VARIABLE,…", harmless=True),
        Extra("prompt_price", "US dollars per million tokens of chats", harmless=True),
        Extra("answer_price", "US dollars per million tokens of answers", harmless=True),
        Extra("max_cost", "maximum US dollars per command for answers (--max-cost: for all models together)", harmless=True),
        Extra("omit", "fields of a chat's request that the server refuses: seed,temperature"),
    )
    packages = ("transformers", "tokenizers")
    reads_weights = False
    repeatable = False
    costs = True
    device_kind = "server"

    def __init__(
        self, source: ModelSource, options: EngineOptions, rows: Sequence[Row], workload: Workload | None = None
    ) -> None:
        self.check(source, options, frozenset(row.head for row in rows))
        self._source, self._options, self._settings = source, options, ServerSettings.read(options, source.served)
        self._client = Client(
            self._settings.url,
            key=os.environ.get(self._settings.key_name),
            key_name=self._settings.key_name,
            connections=self._settings.concurrency,
            patience=self._settings.patience,
            headers=self._settings.headers,
        )
        self._meter = CostMeter(self._settings.prices, self._settings.budget)
        self._control: dict[str, Any] | None = None
        try:
            self._model, self._details = self._find_model(rows) if source.served is None else (source.served.name, {})
            self._probe(rows)
        except ServerError as error:
            self.close()
            raise (NotNowError if error.passing else InputError)(self._first_contact(error)) from error
        except InputError:
            self.close()
            raise
        settings = self._settings
        self._talk = Conversation(
            self._client,
            self._model,
            settings.patience,
            self._meter,
            concurrency=settings.concurrency,
            omit=settings.omit,
            thinking=source.thinking,
        )

    @classmethod
    def check(cls, source: ModelSource, options: EngineOptions, heads: frozenset[str]) -> None:
        """Raise InputError as any engine does, and for invalid options."""
        super().check(source, options, heads)
        ServerSettings.read(options, source.served)

    @classmethod
    def unsent(cls, options: EngineOptions) -> frozenset[str]:
        """The fields in `omit`."""
        return _omitted(str(options.extra.get("omit", "")))

    @classmethod
    def dollars(cls, options: EngineOptions, prompt_tokens: int, answer_tokens: int) -> float | None:
        """The cost at prompt_price and answer_price."""
        extra = dict(options.extra)
        prices = _prices(extra)
        return None if prices == FREE else prices.of(prompt_tokens, answer_tokens)

    def details(self) -> dict[str, Any]:
        """The server and model that answer, as reported by the server."""
        return {**self._details, "device": self.device_kind}

    def score(self, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
        """Log-probabilities of every row's lookups, one float32 array per row, in order.

        Raises EngineError with the row's index if the server rejects the row, fails only at it, or returns a log P that is not
        finite; without index if the server does not respond.
        """
        return self.score_kept(rows, None)

    def score_kept(self, rows: Sequence[Row], kept: AnswerStore | None) -> list[NDArray[np.floating]]:
        """As `score`, without values that are already stored; new values are stored before the next request of their thread."""
        answers: list[NDArray[np.floating]] = [np.full(len(row.lookups), np.nan, dtype=np.float32) for row in rows]
        jobs: list[_Job] = []
        for index, row in enumerate(rows):
            known = [kept.logprob(row.ids[: at + 1], token) if kept else None for at, token in row.lookups]
            for lookup, value in enumerate(known):
                if value is not None:
                    answers[index][lookup] = value
            wanted = (query for query in plan(row, grid=False) if any(known[cell.lookup] is None for cell in query.cells))
            jobs += [(index, query) for query in wanted]
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            futures = [(portion, pool.submit(self._ask, rows, portion, kept)) for portion in _portions(jobs)]
            try:
                for portion, future in futures:
                    for (index, query), values in zip(portion, future.result(), strict=True):
                        for cell, value in zip(query.cells, values, strict=True):
                            answers[index][cell.lookup] = value
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for index, read in enumerate(answers):
            if not all(map(_finite, read)):
                raise EngineError(f"row {index}: log P is not finite (the model's logits are NaN or infinite)", row=index)
        return answers

    def generate(self, rows: Sequence[Row], kept: AnswerStore | None = None) -> list[tuple[Reply, ...]]:
        """Answers to `chat` rows: see `Conversation.replies`."""
        return self._talk.replies(rows, kept)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, rows: Sequence[Row], jobs: Sequence[_Job], kept: AnswerStore | None) -> list[list[float]]:
        """The values of the cells of queries with equal parameters, in order, after storing them. Raises EngineError."""
        prompts = [list(rows[index].ids[: query.length]) for index, query in jobs]
        try:
            choices = self._complete(prompts, _parameters(jobs[0][1]))
            found = [
                [_value(choice, rows[index], query, cell) for cell in query.cells]
                for (index, query), choice in zip(jobs, choices, strict=True)
            ]
        except ServerError as error:
            where = f"the server at {self._settings.url}"
            if error.general:
                raise InputError(f"{where} can't be used: {error}") from error
            at_fault = error.status == 400 or (error.of_one and self._answers())
            if at_fault and len(jobs) > 1:  # one prompt is at fault: find out which
                return [values for job in jobs for values in self._ask(rows, [job], kept)]
            row = jobs[0][0] if at_fault else None
            at = f"row {row}: " if at_fault else ""
            kind = FailingError if at_fault and error.passing else EngineError
            raise kind(f"{at}{where} failed: {error}", row=row, again=error.passing and not at_fault) from error
        except (KeyError, TypeError, IndexError) as error:
            raise EngineError(
                f"the server at {self._settings.url} did not return log-probabilities that were requested"
            ) from error
        if kept is not None:
            lookups = [
                (*rows[index].lookups[cell.lookup], rows[index].ids, value)
                for (index, query), values in zip(jobs, found, strict=True)
                for cell, value in zip(query.cells, values, strict=True)
            ]
            kept.add_logprobs([(ids[: at + 1], token, value) for at, token, ids, value in lookups if _finite(value)])
        return found

    def _answers(self) -> bool:
        """Whether the server now answers a prompt that it has answered before."""
        try:
            return self._control is not None and bool(self._completed(self._control))
        except ServerError:
            return False

    def _complete(self, prompts: list[list[int]], parameters: dict[str, Any]) -> list[Any]:
        """The server's choices in the prompts' order, with retries. Raises ServerError."""
        body = {"model": self._model, "prompt": prompts, **parameters}
        choices: list[Any] = self._settings.patience.retrying()(self._completed, body)
        return choices

    def _completed(self, body: dict[str, Any]) -> list[Any]:
        prompts, answer = body["prompt"], self._client.ask("POST", "completions", body)
        try:
            if told := next(filter(None, map(told_error, (answer, *answer["choices"]))), ""):
                raise ServerError(f"an error instead of an answer: {told}", 200, passing=True)
            model, choices = answer["model"], sorted(answer["choices"], key=lambda choice: choice["index"])
        except (KeyError, TypeError) as error:
            told = told_error(answer)
            raise ServerError("the answer is not a completion" + (f": {told}" if told else ""), 200, passing=True) from error
        if model != self._model:
            raise ServerError(f"model {model!r} answers instead of {self._model!r}")
        if len(choices) != len(prompts):
            raise ServerError(f"{len(choices)} answers to {len(prompts)} prompts")
        return choices

    def _find_model(self, rows: Sequence[Row]) -> tuple[str, dict[str, Any]]:
        """The model's name on the server, and the server's information on it."""
        listed = self._client.get("models")
        try:
            served = {model["id"]: model for model in listed["data"]}
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{self._settings.url} is not an OpenAI-compatible server: give its base URL, /v1 included"
            ) from error
        names = ", ".join(map(repr, served)) or "nothing"
        wanted = self._settings.served_model or (next(iter(served)) if len(served) == 1 else None)
        if wanted is None:
            raise InputError(f"the server at {self._settings.url} serves {names}: choose with --extra served_model=NAME")
        if wanted not in served:
            raise InputError(f"the server at {self._settings.url} serves {names}, not {wanted!r}: correct served_model")
        longest = max((row.places for row in rows), default=0)
        limit = served[wanted].get("max_model_len")
        if limit is not None and longest + 1 > limit:
            raise InputError(
                f"the server at {self._settings.url} takes {limit} tokens, the longest row needs {longest + 1}: "
                "start it with a larger --max-model-len"
            )
        return wanted, {"served_model": wanted, "served_from": served[wanted].get("root"), "server": self._server_version()}

    def _server_version(self) -> str | None:
        """The version of vLLM's server; other servers do not report it."""
        client = Client(
            self._settings.url.rstrip("/").removesuffix("/v1"),
            key=None,
            connections=1,
            patience=Patience(retries=0, timeout=60),
        )
        try:
            return f"vllm {client.get('version')['version']}"
        except (ServerError, KeyError, TypeError):
            return None
        finally:
            client.close()

    def _probe(self, rows: Sequence[Row]) -> None:
        """Request one value by both methods of scoring: forced after a prompt, and as the prompt's own token."""
        row = min((row for row in rows if row.lookups), key=lambda row: len(row.ids), default=None)
        if row is None:
            return
        position, token = row.lookups[0]
        probe = Row("causal", (*row.ids[: position + 1], token), ((position, token),))
        forced = Query(position + 1, (token,), token, False, (), 0, (Cell(0, "step", 0, 0),))
        scored = Query(position + 2, (token,), None, True, (), 0, (Cell(0, "prompt", position, 0),))
        values = []
        for query, what in (forced, "log-probabilities of given tokens"), (scored, "prompt log-probabilities"):
            (choice,) = self._complete([list(probe.ids[: query.length])], _parameters(query))
            try:
                values.append(_value(choice, probe, query, query.cells[0]))
            except (KeyError, TypeError, IndexError) as error:
                raise InputError(
                    f"the server at {self._settings.url} can't give {what}: it must be vLLM's own, 0.31 or newer"
                ) from error
        self._control = {"model": self._model, "prompt": [list(probe.ids[: forced.length])], **_parameters(forced)}
        limit = TOLERANCE[self._options.dtype]
        if not (abs(values[0] - values[1]) <= limit and max(values) <= limit):
            raise InputError(
                f"the server at {self._settings.url} contradicts itself: log P {values[0]:.4f} and {values[1]:.4f} for one "
                "token; start it with --logprobs-mode raw_logprobs"
            )

    def _first_contact(self, error: ServerError) -> str:
        url = self._settings.url
        match error.status:
            case None:
                return f"the server at {url} can't be used: {error}; is it running, and is the URL right?"
            case 401 | 403:
                return f"the server at {url} refuses access ({error}): set OPENAI_API_KEY"
            case 404:
                return f"the server at {url} has no completions API ({error}): give its base URL, /v1 included"
            case 400 | 422:
                return f"the server at {url} can't give exact log-probabilities ({error}): it must be vLLM's own server"
            case _:
                return f"the server at {url} fails ({error}): look at its log"


def _prices(extra: dict[str, Any]) -> Prices:
    """The prices from the extra options."""
    return Prices(*(_dollars(name, extra.pop(name, 0)) for name in ("prompt_price", "answer_price")))


def _dollars(name: str, value: Any) -> float:
    """The extra option `name` as an amount of money."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InputError(f"extra option {name}={value!r} is not an amount of US dollars")
    return number


def _omitted(names: str) -> frozenset[str]:
    found = frozenset(name.strip() for name in names.split(",") if name.strip())
    if wrong := sorted(found - {"seed", "temperature"}):
        raise InputError(f"extra option omit={wrong[0]!r}: only seed and temperature can be omitted from a chat's request")
    return found


def _headers(text: str) -> dict[str, str]:
    """Header → variable, of `NAME=VARIABLE,…`."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    for name, _, variable in pairs:
        if not (re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) and re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII)):
            raise InputError(f"extra option header={name}=…: give NAME=VARIABLE, the environment variable that holds its value")
    return {name: variable for name, _, variable in pairs}


def _number(extra: dict[str, Any], name: str, default: Any, kind: type) -> Any:
    """A positive number from the extra options, which may be a string."""
    value = extra.pop(name, default)
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or (number == 0 and name != "retries"):
        raise InputError(f"extra option {name}={value!r} is not a positive number")
    return number


def _portions(jobs: Iterable[_Job]) -> list[list[_Job]]:
    """Group jobs into HTTP requests: equal parameters, a maximum number of prompts, order preserved if possible."""
    groups: dict[tuple[Any, ...], list[_Job]] = defaultdict(list)
    for job in jobs:
        query = job[1]
        groups[(query.tokens, query.forced, query.prompt_scores)].append(job)
    return [group[i : i + _PROMPTS_A_REQUEST] for group in groups.values() for i in range(0, len(group), _PROMPTS_A_REQUEST)]


def _parameters(query: Query) -> dict[str, Any]:
    """Completion parameters of a query; at temperature 0, because the sampled tokens are ignored."""
    parameters: dict[str, Any] = {
        "max_tokens": query.steps,
        "temperature": 0.0,
        "ignore_eos": True,
        "logprobs": 1,
        "logprob_token_ids": list(query.tokens),
        "return_tokens_as_token_ids": True,
    }
    if query.forced is not None:
        parameters["allowed_token_ids"] = [query.forced]
    if query.prompt_scores:
        parameters["prompt_logprobs"] = 0
    return parameters


def _value(choice: Any, row: Row, query: Query, cell: Cell) -> float:
    """A lookup's log P from the server's choice. Raises KeyError, TypeError or IndexError if it is missing."""
    if cell.source == "step":
        return float(choice["logprobs"]["top_logprobs"][cell.line][f"token_id:{query.tokens[cell.column]}"])
    # The list's first element is the first token's, which is predicted from nothing.
    return float(choice["prompt_logprobs"][cell.line + 1][str(row.ids[cell.line + 1])]["logprob"])


def _finite(value: float) -> bool:
    """Whether the value is a log P: JSON has no infinity, and vLLM's server writes -9999."""
    return bool(np.isfinite(value)) and value > -9999
