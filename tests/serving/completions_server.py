"""A small HTTP server with the parts of vLLM's completions API that the openai engine uses, and ways to go wrong."""

import contextlib
import json
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.local_server import Handler, LocalServer


def log_p(prefix: Sequence[int], token: int) -> float:
    """The made-up model: some negative number for every prefix and token."""
    return -1.0 - abs(math.sin(sum((i + 1) * t for i, t in enumerate(prefix)) + 0.7 * token))


Failure = Callable[[dict[str, Any], int], tuple[int, Any] | None]
"""(request body, how many completions were asked for before) → a status and a body to answer instead, None for none."""


class CompletionsServer:
    """Serves `log_p` at `url` until it is closed. `seen` counts requests, prompts and computed tokens."""

    def __init__(
        self, *, models: Sequence[str] = ("made-up",), failure: Failure | None = None, max_model_len: int = 64
    ) -> None:
        self.models, self.failure, self.max_model_len = models, failure, max_model_len
        self.seen: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Condition()
        self._lines: list[socket.socket] = []
        server = self

        class Completions(Handler):
            def do_GET(self) -> None:
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                models = [{"id": name, "root": f"/{name}", "max_model_len": server.max_model_len} for name in server.models]
                known = {"/v1/models": {"data": models}, "/version": {"version": "0.0.test"}}
                self.answer(*((200, known[self.path]) if self.path in known else (404, {"detail": "Not Found"})))

            def do_POST(self) -> None:
                body = json.loads(self.body())
                with server.lock:
                    before = server.seen["requests"]
                    server.seen["requests"] += 1
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                    server.lock.notify_all()
                try:
                    failed = server.failure(body, before) if server.failure else None
                    answer = failed or (200, server.complete(body))
                finally:
                    with server.lock:
                        server.in_flight -= 1  # before it is sent: whoever has it may ask again at once
                self.answer(*answer)

        class Listener(LocalServer):
            def process_request(self, request: Any, client_address: Any) -> None:
                server._lines.append(request)
                super().process_request(request, client_address)

        self._http = Listener(Completions)
        self.url = f"{self._http.url}/v1"

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """What vLLM's server answers, as far as the engine reads it."""
        choices, tokens = [], 0
        for index, ids in enumerate(body["prompt"]):
            given = list(ids)
            steps = []
            for _ in range(body["max_tokens"]):
                sampled = (body.get("allowed_token_ids") or [0])[0]
                steps.append({f"token_id:{t}": log_p(given, t) for t in (sampled, *body["logprob_token_ids"])})
                given.append(sampled)
            tokens += len(given) - 1
            choice: dict[str, Any] = {"index": index, "logprobs": {"top_logprobs": steps}}
            if body.get("prompt_logprobs") == 0:
                choice["prompt_logprobs"] = [None, *({str(t): {"logprob": log_p(ids[:i], t)}} for i, t in enumerate(ids) if i)]
            choices.append(choice)
        with self.lock:
            self.seen.update(prompts=len(body["prompt"]), tokens=tokens)
        return {"model": body["model"], "choices": choices[::-1]}

    def meet(self, count: int) -> None:
        """Let a request wait until so many have been under way at the same time."""
        with self.lock:
            self.lock.wait_for(lambda: self.most_in_flight >= count, timeout=60)

    def close(self) -> None:
        """Answer nobody any more, those neither whose connections are kept."""
        self._http.close()
        for line in self._lines:
            with contextlib.suppress(OSError):  # its end has gone
                line.shutdown(socket.SHUT_RDWR)
