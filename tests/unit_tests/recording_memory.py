"""A memory that asks no server: it gives what it is told to and writes down how it was asked.

For the adapters' shapes alone; what memory does is tested against the real server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from langchain_hindsight.memory import DualBankMemory
from langchain_hindsight.recall_result import BankRecall, RecalledMemory, RecallResult
from langchain_hindsight.receipts import RetainReceipt
from langchain_hindsight.settings import HindsightSettings

BLOCK = "<hindsight-memory>\nDeploys happen on Fridays.\n</hindsight-memory>"


@dataclass
class Call:
    name: str
    payload: Any
    config: Any = None
    context: Any = None
    thread_id: str | None = None


@dataclass(eq=False)
class RecordingMemory(DualBankMemory):
    result: RecallResult = field(default_factory=lambda: RecallResult(text=BLOCK))
    receipt: RetainReceipt = field(default_factory=lambda: RetainReceipt("stored"))
    error: Exception | None = None
    injection: str = "human"
    life: bool = False
    calls: list[Call] = field(default_factory=list)

    @property
    def settings(self):
        return HindsightSettings(recall={"injection": self.injection})

    @property
    def has_life(self):
        return self.life

    def __reduce__(self):
        return RecordingMemory, (self.result, self.receipt, self.error, self.injection, self.life)

    def named(self, *names):
        return [call for call in self.calls if call.name in names]

    def recall(self, query_or_messages, config=None, *, context=None, expressly=False):
        self.calls.append(Call("recall", query_or_messages, config, context))
        return self.result

    async def arecall(self, query_or_messages, config=None, *, context=None, expressly=False):
        self.calls.append(Call("arecall", query_or_messages, config, context))
        return self.result

    def recall_turn(self, messages, config=None, *, context=None):
        self.calls.append(Call("recall_turn", list(messages), config, context))
        return self.result

    async def arecall_turn(self, messages, config=None, *, context=None):
        self.calls.append(Call("arecall_turn", list(messages), config, context))
        return self.result

    def retain(self, messages_or_text, thread_id=None, config=None, *, context=None):
        self.calls.append(Call("retain", messages_or_text, config, context, thread_id))
        return self.receipt

    async def aretain(self, messages_or_text, thread_id=None, config=None, *, context=None):
        self.calls.append(Call("aretain", messages_or_text, config, context, thread_id))
        return self.receipt

    def retain_life(self, text, config=None, *, context=None):
        return self._asked("retain_life", text, config, self.receipt)

    async def aretain_life(self, text, config=None, *, context=None):
        return self._asked("aretain_life", text, config, self.receipt)

    def reflect(self, query, config=None, *, context=None):
        return self._asked("reflect", query, config, "On Fridays.")

    async def areflect(self, query, config=None, *, context=None):
        return self._asked("areflect", query, config, "On Fridays.")

    def _asked(self, name, payload, config, answer):
        self.calls.append(Call(name, payload, config))
        if self.error is not None:
            raise self.error
        return answer


def bank(*texts, error=None):
    memories = tuple(RecalledMemory(id=text, text=text) for text in texts)
    return BankRecall("a-bank", memories=memories, error=error)
