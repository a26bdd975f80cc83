"""Chats over HTTP: one request an answer, many at a time, each answer kept before its thread asks for another."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from threading import Event
from typing import Any

from evaluator_serving.chats import Chat, Finish, Kept, Reply
from evaluator_serving.errors import EngineError, InputError
from evaluator_serving.openai_engine.client import Client, Patience, ServerError, told_error
from evaluator_serving.openai_engine.costs import Meter
from evaluator_serving.purse import CostError
from evaluator_serving.rows import Row

_FINISHES: dict[str, Finish] = {"length": "length", "max_tokens": "length", "content_filter": "filtered"}
_LIMITS = ("max_tokens", "max_completion_tokens")
"""What servers call the most tokens of an answer; some refuse the one and some the other."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message in which servers give what was thought before the answer."""
_MOST = 1e9
"""No chat has so many tokens."""


class _StoppedError(Exception):
    """Another chat has failed: this one wasn't asked."""


class Conversation:
    """A model at a server that answers chats.

    `omit`: fields of the request that this server refuses (`seed`, `temperature`).
    """

    def __init__(
        self, client: Client, model: str, patience: Patience, meter: Meter, *, concurrency: int, omit: frozenset[str]
    ) -> None:
        self._client = client
        self._model = model
        self._patience = patience
        self._meter = meter
        self._concurrency = concurrency
        self._omit = omit
        self._limit = _LIMITS[0]

    def replies(self, rows: Sequence[Row], kept: Kept | None) -> list[tuple[Reply, ...]]:
        """The replies to every row, in the rows' order.

        Where one can't be had, those that are under way are waited for and kept, nothing else is asked for, and EngineError is
        raised, with the row's index where the server refuses that chat alone; InputError where it refuses everything.
        """
        wanted = [(index, one) for index, row in enumerate(rows) if row.chat for one in row.chat.single()]
        with ThreadPoolExecutor(self._concurrency) as pool:
            stop = Event()
            futures = [pool.submit(self._reply, index, one, kept, stop) for index, one in wanted]
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    if error is not None and not isinstance(error, _StoppedError):
                        raise error
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        said: list[list[Reply]] = [[] for _ in rows]
        for (index, _), future in zip(wanted, futures, strict=True):
            said[index].append(future.result())
        return [tuple(replies) for replies in said]

    def _reply(self, index: int, chat: Chat, kept: Kept | None, stop: Event) -> Reply:
        if kept is not None and (known := kept.get(chat)) is not None:
            return known
        if stop.is_set():
            raise _StoppedError
        try:
            reply: Reply = self._patience.retrying(stop)(self._asked, chat)
        except ServerError as error:
            if error.passing and stop.is_set():
                raise _StoppedError from error
            stop.set()
            raise self._told(index, error) from error
        except CostError:
            stop.set()
            raise
        if kept is not None:
            kept.add(chat, reply)
        return reply

    def _asked(self, chat: Chat) -> Reply:
        """One request. Raises ServerError, and CostError before anything is sent."""
        reserved, limit = self._meter.reserve(chat), self._limit
        try:
            answer = self._client.ask("POST", "chat/completions", self._body(chat, limit))
            reply = _read(answer)
        except ServerError as error:
            # A request that was refused costs nothing; one whose answer broke off may have been answered and billed.
            self._meter.release(reserved, perhaps=error.perhaps_done)
            if error.status == 400 and "content_filter" in str(error):
                return Reply("", "filtered", served=self._model, date=_now())
            if error.status in (400, 422) and limit == _LIMITS[0] and _LIMITS[1] in str(error):
                self._limit = _LIMITS[1]
                return self._asked(chat)
            raise
        except BaseException:
            self._meter.release(reserved, perhaps=True)
            raise
        self._meter.settle(reserved, *_counted(answer))
        return reply

    def _body(self, chat: Chat, limit: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in chat.turns],
            limit: chat.max_tokens,
            "temperature": chat.temperature,
            "seed": chat.seed,
        }
        return {name: value for name, value in fields.items() if name not in self._omit}

    def _told(self, index: int, error: ServerError) -> Exception:
        """The error as the run's."""
        where = f"{self._client.url} ({self._model})"
        match error.status:
            case 401 | 403:
                return InputError(f"the server at {where} refuses access ({error}): set {self._client.key_name} to your key")
            case 404 | 405:
                return InputError(f"the server at {where} has no such model or no chat completions ({error}): correct URL#NAME")
            case 400 | 413 | 422:
                named = next((field for field in ("seed", "temperature") if field in str(error)), None)
                remedy = f"; leave it out with --extra omit={named}" if named else ""
                return EngineError(f"row {index}: the server at {where} refuses the chat: {error}{remedy}", index)
            case _:
                return EngineError(f"the server at {where} failed: {error}", again=True)


def _read(answer: Any) -> Reply:
    """The reply in a server's answer. Raises ServerError where there is none."""
    try:
        choice = answer["choices"][0]
        message, (prompt_tokens, answer_tokens) = choice["message"], _counted(answer)
        text, refusal = message.get("content"), message.get("refusal")
        finish: Finish = "refused" if refusal else _FINISHES.get(str(choice.get("finish_reason")), "stop")
        thought = next((given for name in _THOUGHTS if (given := _text(message.get(name)))), "")
        if isinstance(text, list):  # some servers answer in parts, thoughts among them
            thought = thought or _text([part.get("thinking") for part in text])
            text = _text([part.get("text") for part in text])
        return Reply(
            text=_whole(str(text or refusal or "")),
            finish=finish,
            prompt_tokens=prompt_tokens or 0,
            answer_tokens=answer_tokens or 0,
            thought=_whole(thought),
            served=_name(answer.get("model")),
            system=_name(answer.get("system_fingerprint")),
            date=_now(),
        )
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        told = told_error(answer)
        message = "the answer is not a chat completion" + (f": {told}" if told else "")
        raise ServerError(message, 200, passing=True, perhaps_done=True) from error


def _text(value: Any) -> str:
    """A text that may be given in parts; empty for anything else."""
    if isinstance(value, list):
        return "".join(map(_text, value))
    return value if isinstance(value, str) else _text(value.get("text")) if isinstance(value, dict) else ""


def _counted(answer: Any) -> tuple[int | None, int | None]:
    """The tokens of chat and answer as the server counts them; None where it doesn't, or says what is no number of tokens.

    An answer is none the worse for that, and asking again would be paid for again.
    """
    usage = answer.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    told = [int(n) for n in counts if isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n < _MOST]
    return (told[0], told[1]) if len(told) == len(counts) else (None, None)


def _name(value: Any) -> str:
    """A name that a server gives, as part of a line: what can't be printed, a terminal's commands say, is left out."""
    return "".join(filter(str.isprintable, " ".join(str(value or "").split())))


def _whole(text: str) -> str:
    """The text without halves of characters, which a server may send where an answer ends, and no file can hold."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
