"""Chats over HTTP: one request per answer, concurrently; each answer is stored before its thread sends another request."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event, Lock
from typing import Any

from evaluator_serving.budget import CostError
from evaluator_serving.chats import AnswerStore, Chat, Finish, Reply, Turn
from evaluator_serving.errors import EngineError, FailingError, InputError
from evaluator_serving.network import passes
from evaluator_serving.openai_engine.client import Client, Patience, ServerError, told_error
from evaluator_serving.openai_engine.costs import CostMeter
from evaluator_serving.rows import Row
from evaluator_serving.thoughts import SWITCHES

_ENDS: dict[Finish, str] = {
    "stop": "stop eos eos_token end end_turn stop_sequence complete finished tool_calls tool_use function_call",
    "length": "length max_tokens max_output_tokens max_completion_tokens model_length model_context_window_exceeded",
    "filtered": "content_filter content_filtered safety recitation blocklist prohibited_content spii guardrail_intervened "
    "sensitive error_toxic",
    "refused": "refusal",
}
_FINISHES: dict[str, Finish] = {name: finish for finish, names in _ENDS.items() for name in names.split()}
"""What servers and the providers behind gateways call the end of an answer. Any other name (error, abort, …) says that the
answer was not finished."""
_BROKEN = re.compile("error|abort|cancel|fail|timeout|insufficient|interrupt")
"""Reasons of the provider behind a gateway that itself says "stop"."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""What servers call the most tokens of an answer; some refuse the one and some the other."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message in which servers give what was thought before the answer."""
_MOST = 1e9
"""No chat has so many tokens."""
_REFUSES = re.compile(
    r"un(supported|recognized|recognised|known|expected)|not (supported|permitted|allowed)|(not|n't) support|instead",
    re.IGNORECASE,
)
"""How servers say that they don't take a field of a request."""
_STREAMS = re.compile(r"only supports? stream|stream(ing)? is required|set .?stream", re.IGNORECASE)
_CONTROL = Turn("user", "Say yes.")
"""What is asked to see whether a server answers at all."""


class _StoppedError(Exception):
    """Another chat has failed, so this one was not sent."""


class Conversation:
    """A model on a server that answers chats.

    `omit`: fields that this server rejects (`seed`, `temperature`). `thinking`: see `ModelSource`.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        patience: Patience,
        meter: CostMeter,
        *,
        concurrency: int,
        omit: frozenset[str],
        thinking: str = "",
    ) -> None:
        self._client = client
        self._model = model
        self._patience = patience
        self._meter = meter
        self._concurrency = concurrency
        self._omit = omit
        self._thinking = _thinking(thinking)
        self._limit = _LIMITS[0]
        self._lock = Lock()
        self._answered = 0
        self._failed: dict[Chat, ServerError] = {}

    def replies(self, rows: Sequence[Row], kept: AnswerStore | None) -> list[tuple[Reply, ...]]:
        """The replies to all rows, in order.

        If one fails, answers in flight are awaited and stored, no further requests are sent, and EngineError is raised, with
        the row's index if the server rejects only that chat; InputError if it rejects all. A chat that keeps failing while
        others succeed is retried after all others, then given up.
        """
        wanted = [(index, one) for index, row in enumerate(rows) if row.chat for one in row.chat.single()]
        replies = self._round(wanted, kept, last=False)
        left = [job for job, reply in zip(wanted, replies, strict=True) if reply is None]
        later = iter(self._round(left, kept, last=True))
        by_row: list[list[Reply]] = [[] for _ in rows]
        for (index, chat), early in zip(wanted, replies, strict=True):
            if (reply := early or next(later)) is None:
                raise self._run_error(index, self._failed[chat])
            by_row[index].append(reply)
        return [tuple(replies) for replies in by_row]

    def _round(self, wanted: Sequence[tuple[int, Chat]], kept: AnswerStore | None, *, last: bool) -> list[Reply | None]:
        """The replies to these chats of one row each; None for a chat at which the server failed while it answered others."""
        with ThreadPoolExecutor(self._concurrency) as pool:
            stop = Event()
            futures = [pool.submit(self._reply, index, one, kept, stop, last=last) for index, one in wanted]
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    if error is not None and not isinstance(error, _StoppedError):
                        raise error
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def _reply(self, index: int, chat: Chat, kept: AnswerStore | None, stop: Event, *, last: bool) -> Reply | None:
        if kept is not None and (known := kept.get(chat)) is not None:
            return known
        if stop.is_set():
            raise _StoppedError
        if chat in self._failed:
            return None
        before = self._answered
        try:
            reply: Reply = self._patience.retrying(stop)(self._send, chat)
        except ServerError as error:
            if error.passing and stop.is_set():
                raise _StoppedError from error
            if error.of_one and self._answers(chat, before, stop):
                if last or not error.passing:
                    self._failed[chat] = error
                return None
            stop.set()
            raise self._run_error(index, error) from error
        except CostError:
            stop.set()
            raise
        if kept is not None:
            kept.add(chat, reply)
        with self._lock:
            self._answered += 1
        return reply

    def _answers(self, chat: Chat, before: int, stop: Event) -> bool:
        """Whether the server answers other chats: several were answered since, or a test chat is."""
        with self._lock:
            if stop.is_set():  # another thread has found out that it doesn't
                return False
            if self._answered == before:
                try:
                    self._send(replace(chat, turns=(*chat.turns[:-1], _CONTROL)))
                except (ServerError, CostError):
                    stop.set()
                    return False
                self._answered += 1
            return True

    def _send(self, chat: Chat) -> Reply:
        """One request. Raises ServerError, and CostError before anything is sent."""
        reserved, limit = self._meter.reserve(chat), self._limit
        answer: Any = None
        try:
            answer = self._client.ask("POST", "chat/completions", self._body(chat, limit))
            reply = _read(answer)
        except ServerError as error:
            if (counted := _counted(answer)) != (None, None):  # it came, and says what is billed for its failure
                self._meter.settle(reserved, *counted)
                raise
            # A request that was refused costs nothing; one whose answer broke off may have been answered and billed.
            self._meter.release(reserved, perhaps=error.perhaps_done)
            if error.status == 400 and "content_filter" in error.whole:
                return Reply("", "filtered", served=self._model, date=_now())
            if limit == _LIMITS[0] and _refused(error, _LIMITS):
                self._limit = _LIMITS[1]
                return self._send(chat)
            raise
        except BaseException:
            self._meter.release(reserved, perhaps=True)
            raise
        counted = _counted(answer) if reply.prompt_tokens else (None, None)  # no chat has none: the server doesn't count
        self._meter.settle(reserved, *counted)
        return reply

    def _body(self, chat: Chat, limit: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in chat.turns],
            limit: chat.max_tokens,
            "temperature": chat.temperature,
            "seed": chat.seed,
            **self._thinking,
        }
        return {name: value for name, value in fields.items() if name not in self._omit}

    def _run_error(self, index: int, error: ServerError) -> Exception:
        """The error for the run."""
        where = f"{self._client.url} ({self._model})"
        if error.general:
            return InputError(f"the server at {where} can't be used: {error}")
        if error in self._failed.values():
            return FailingError(f"row {index}: the server at {where} fails at this chat, and answers others: {error}", index)
        match error.status:
            case 401 | 403:
                return InputError(f"the server at {where} refuses access ({error}): set {self._client.key_name} to your key")
            case 404 | 405 | 301 | 302 | 303 | 307 | 308:
                return InputError(f"the server at {where} has no such model or no chat completions ({error}): correct URL#NAME")
            case 400 | 413 | 422:
                if _STREAMS.search(error.whole):
                    return InputError(
                        f"the server at {where} only answers in streams, which this program doesn't read: {error}"
                    )
                named = next((field for field in ("seed", "temperature") if field in error.whole), None)
                remedy = f"; omit it with --extra omit={','.join([*sorted(self._omit), named])}" if named else ""
                if named and _refused(error, (named,)):
                    return InputError(f"the server at {where} refuses every chat with a {named}: {error}{remedy}")
                if any(field in error.whole for field in self._thinking):
                    remedy = (
                        "; choose another --thinking (on and off are sent as chat_template_kwargs, levels as reasoning_effort)"
                    )
                    return InputError(f"the server at {where} refuses --thinking: {error}{remedy}")
                return EngineError(f"row {index}: the server at {where} refuses the chat: {error}{remedy}", index)
            case int(status) if 402 < status < 500 and not passes(status):
                return InputError(f"the server at {where} refuses chats: {error}")
            case 200 if not error.passing:
                return EngineError(f"row {index}: the server at {where} failed: {error}", index)
            case _:
                return EngineError(f"the server at {where} failed: {error}", again=True)


def _refused(error: ServerError, fields: Sequence[str]) -> bool:
    """Whether the server rejects one of these request fields, whatever its value."""
    named = any(field in error.whole for field in fields)
    return error.status in (400, 422) and named and _REFUSES.search(error.whole) is not None


def _thinking(choice: str) -> dict[str, Any]:
    """Request fields that set the thinking: variables of chat templates, or an effort level."""
    if choice in ("on", "off"):
        return {"chat_template_kwargs": dict.fromkeys(SWITCHES, choice == "on")}
    return {"reasoning_effort": choice} if choice else {}


def _read(answer: Any) -> Reply:
    """The reply in a server's response. Raises ServerError if there is none, or if the response reports a failure."""
    try:
        choice = answer["choices"][0]
        message, reason = choice.get("message"), str(choice.get("finish_reason") or "").strip().lower()
        hidden = [part.get("provider_specific_fields") or {} for part in (choice, message or {})]  # LiteLLM's
        if told := next(filter(None, map(told_error, (answer, choice, message, *hidden))), ""):
            raise ServerError(f"an error instead of an answer: {told}", 200, passing=True, perhaps_done=True)
        if message is None and _FINISHES.get(reason) != "filtered":
            raise ServerError("the answer holds no message", 200, perhaps_done=True)
        message, (prompt_tokens, answer_tokens) = message or {}, _counted(answer)
        text, refusal = message.get("content"), message.get("refusal") or hidden[1].get("refusal")
        native = str(choice.get("native_finish_reason") or hidden[0].get("native_finish_reason") or "").lower()
        if native not in _FINISHES and _BROKEN.search(native):
            raise ServerError(f"an answer that wasn't finished ({native!r})", 200, passing=True, perhaps_done=True)
        if reason not in _FINISHES and not (reason == "" and any(message.get(part) for part in _SAID)):
            end = f"finish_reason {choice.get('finish_reason')!r}"
            raise ServerError(f"an answer that wasn't finished ({end})", 200, passing=True, perhaps_done=True)
        thought = next((given for name in _THOUGHTS if (given := _text(message.get(name)))), "")
        if isinstance(text, list):  # some servers answer in parts, thoughts among them
            thought = thought or _text([part.get("thinking") for part in text])
            text = _text([part.get("text") for part in text])
        return Reply(
            text=_whole(str(text or refusal or "")),
            finish="refused" if refusal else _FINISHES.get(reason, "stop"),
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


_SAID = ("content", "refusal", "tool_calls", "function_call", *_THOUGHTS)
"""Fields of a message of which one is filled where something was said; some servers then give no reason for the end."""


def _counted(answer: Any) -> tuple[int | None, int | None]:
    """Billed tokens of chat and answer; None if the server does not count them, or reports invalid numbers.

    Missing counts do not invalidate an answer. Reasoning is billed like answers; some servers include it only in the total, or
    report it separately.
    """
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None, None
    prompt, said = _tokens(usage, "prompt_tokens", "input_tokens"), _tokens(usage, "completion_tokens", "output_tokens")
    if prompt is None or said is None:
        return None, None
    total = _tokens(usage, "total_tokens")
    places = (usage, usage.get("completion_tokens_details"), usage.get("output_tokens_details"))
    thoughts = max(_tokens(place, "reasoning_tokens") or 0 for place in places)
    beside = said + thoughts if thoughts > said else said
    return prompt, max(beside, (total or 0) - prompt)


def _tokens(usage: Any, *names: str) -> int | None:
    count = next((usage[name] for name in names if name in usage), None) if isinstance(usage, dict) else None
    if isinstance(count, str) and count.isdecimal():
        count = int(count)
    return int(count) if isinstance(count, int | float) and not isinstance(count, bool) and 0 <= count < _MOST else None


def _name(value: Any) -> str:
    """A name reported by a server, without unprintable characters and terminal commands."""
    return "".join(filter(str.isprintable, " ".join(str(value or "").split())))


def _whole(text: str) -> str:
    """The text without unpaired surrogates, which a server may send at the end of an answer and files cannot store."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
