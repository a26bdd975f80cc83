"""A small HTTP server with OpenAI's chat completions: answers known words, goes wrong as it is told, and counts everything."""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.local_server import Handler, LocalServer

PROMPT_TOKENS, ANSWER_TOKENS = 50, 3
"""What every answer is billed."""


@dataclass
class Fault:
    """An answer other than the usual one.

    Attributes:
        status, headers: of the response.
        body: bytes, or a JSON value; None for the usual answer.
        cut: whether the connection ends in the middle of the body.
        wait: seconds before anything is sent.
        message: fields of the usual answer's message instead of its words; finish: how it says that it ended.
        top, choice: fields of the usual answer's outermost object, and of its choice.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    cut: bool = False
    wait: float = 0.0
    message: dict[str, Any] | None = None
    finish: str = "stop"
    top: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)


def words(content: str) -> str:
    """What the made-up model says to a user's turn: one of the letters, now and then something else."""
    return ["(a)", "(B), I think", "(c)", "Neither.", "I'm sorry, I can't say.", "(a) or (b)"][
        hashlib.sha256(content.encode()).digest()[0] % 6
    ]


Faults = Callable[[str, int], Fault | None]
"""(the user's words, how often they were asked before) → what goes wrong, None for nothing."""


class ChatServer:
    """Answers `words` at `url`. `asked`: the user's turn and seed → how often; `answered`: those sent whole, status 200."""

    def __init__(self, faults: Faults | None = None, *, model: str = "talker", delay: float = 0.0) -> None:
        self.model = model
        self.path = "/v1/chat/completions"
        self.asked: Counter[tuple[str, int | None]] = Counter()
        self.answered: Counter[tuple[str, int | None]] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.moments: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Condition()
        server = self

        class Chats(Handler):
            def do_POST(self) -> None:
                body = json.loads(self.body())
                content = body["messages"][-1]["content"]
                key = content, body.get("seed")
                with server.lock:
                    before = server.asked[key]
                    server.asked[key] += 1
                    server.bodies.append(body)
                    server.headers.append({name.lower(): value for name, value in self.headers.items()})
                    server.moments.append(time.monotonic())
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                    server.lock.notify_all()
                fault = (faults(content, before) if faults else None) or Fault()
                if pause := fault.wait or delay:
                    time.sleep(pause)
                if self.path != server.path:
                    fault = Fault(404, body={"error": {"message": "no such path"}})
                whole = [key] if fault.status == 200 and not fault.cut and fault.body is None else []
                with server.lock:
                    server.in_flight -= 1
                    server.answered.update(whole)  # before it is sent: whoever has it may look at once
                try:
                    self.reply(fault, fault.body if fault.body is not None else server.usual(content, fault))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                    with server.lock:
                        server.answered.subtract(whole)
                        server.answered = +server.answered

            def reply(self, fault: Fault, body: Any) -> None:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                headers = {"content-type": "application/json", "content-length": str(len(content)), **fault.headers}
                self.answer(fault.status, content[: len(content) // 2] if fault.cut else content, headers)
                self.close_connection |= fault.cut

        self.http = LocalServer(Chats)
        self.url = f"{self.http.url}/v1"
        self.spec = f"{self.url}#{model}"

    def usual(self, content: str, fault: Fault) -> dict[str, Any]:
        """A chat completion."""
        message = fault.message or {"role": "assistant", "content": words(content)}
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": ANSWER_TOKENS}
        choice = {"index": 0, "message": message, "finish_reason": fault.finish, **fault.choice}
        return {"model": self.model, "system_fingerprint": "fp_1", "choices": [choice], "usage": usage, **fault.top}

    def meet(self, count: int) -> None:
        """Let a request wait until so many have been under way at the same time."""
        with self.lock:
            self.lock.wait_for(lambda: self.most_in_flight >= count, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
