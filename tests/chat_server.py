"""A server that speaks /v1/chat/completions.

As a script it serves until its standard input closes, so that a benchmark can run it in a process of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jsonserver


@dataclass(frozen=True)
class Say(jsonserver.Say):
    """How the server meets one attempt."""

    text: str | None = None
    """The answer; None for an echo of the last message."""
    message: dict[str, Any] = field(default_factory=dict)
    """Further fields of the message."""
    choice: dict[str, Any] = field(default_factory=dict)
    """Further fields of the choice."""
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5})


Plan = Callable[[str, int], Say]
"""From the last message and how often it was asked before, to what happens."""


class ChatServer(jsonserver.JsonServer):
    """`plan` says what happens to a message."""

    def __init__(self, plan: Plan = lambda prompt, nth: Say(), latency: float = 0.0) -> None:
        super().__init__(plan, latency)
        self.asked: Counter[str] = Counter()
        """Attempts by last message."""

    @property
    def attempts(self) -> int:
        return sum(self.asked.values())

    def meet(self, body: dict[str, Any]) -> jsonserver.Say:
        prompt = body["messages"][-1]["content"]
        nth = self.asked[prompt]
        self.asked[prompt] += 1
        return self.plan(prompt, nth)

    def answer(self, say: Say, body: dict[str, Any]) -> object:
        if say.status != 200:
            return {"error": {"message": say.text or "no", "type": "test"}}
        text = f"answer to {body['messages'][-1]['content']}" if say.text is None else say.text
        message = {"role": "assistant", "content": text, **say.message}
        choice = {"index": 0, "message": message, "finish_reason": "stop", **say.choice}
        return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": say.usage}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.2)
    arguments = parser.parse_args()
    with ChatServer(latency=arguments.latency) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
