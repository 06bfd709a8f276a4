"""A server that fails on demand: what stands between us and Hindsight, not Hindsight itself."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import get_args

from langchain_hindsight.background_loop import BackgroundLoop
from langchain_hindsight.gateway import GatewayError, Kind, OperationStatus
from langchain_hindsight.outbox.address import address_of

URL = "http://memory.example"


def failure(kind, **more):
    assert kind in get_args(Kind)
    return GatewayError(f"{kind}!", kind=kind, **more)


class ScriptedServer:
    """Answers as scripted, and after that as a server that is well."""

    def __init__(self):
        self.url = URL
        self.key = None
        self.loop = BackgroundLoop()
        self.retains = deque()
        self.statuses = deque()
        self.poison = ()
        self.choking = ()
        self.slow = {}
        self.pending = False
        self.asked_statuses = []
        self.facts = False
        self.asked_facts = 0
        self.banks = set()
        self.created = {}
        self.creations = deque()
        self.requests = []
        self.stored = {}
        self.sent = threading.Condition()
        self._operations = {}

    def address(self):
        return address_of(self.url, self.key)

    async def retain(self, bank_id, items, *, operation_id):
        with self.sent:
            self.requests.append((bank_id, operation_id, items))
            self.sent.notify_all()
        if bank_id in self.slow:
            await asyncio.sleep(self.slow[bank_id])
        if self.retains:
            answer = self.retains.popleft()
            if isinstance(answer, Exception):
                raise answer
            return answer
        if any(word in item["content"] for item in items for word in self.poison):
            raise failure("rejected", status=422)
        if any(word in item["content"] for item in items for word in self.choking):
            raise failure("server", status=500)
        if operation_id not in self._operations:
            self._operations[operation_id] = "completed"
            for item in items:
                self.stored[item["document_id"]] = item["content"]
        return len(items)

    async def operation_status(self, bank_id, operation_id):
        self.asked_statuses.append(operation_id)
        if self.pending:
            return OperationStatus("pending")
        if self.statuses:
            answer = self.statuses.popleft()
            if isinstance(answer, Exception):
                raise answer
            return answer
        return OperationStatus(self._operations.get(operation_id, "not_found"))

    async def extracts_facts(self, bank_id):
        self.asked_facts += 1
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts

    async def bank_exists(self, bank_id):
        return bank_id in self.banks

    async def create_bank(self, bank_id, missions):
        if self.creations and isinstance(error := self.creations.popleft(), Exception):
            raise error
        self.created[bank_id] = missions
        self.facts = False

    def contents(self):
        return sorted(self.stored.values())

    def wait_for_requests(self, count, timeout=10):
        with self.sent:
            assert self.sent.wait_for(lambda: len(self.requests) >= count, timeout)

    def wait_for_items(self, count, timeout=20):
        with self.sent:
            sent = self.sent.wait_for(lambda: len(self.items()) >= count, timeout)
            assert sent, f"{len(self.items())} of {count} items were sent"

    def items(self):
        return [item for _, _, items in self.requests for item in items]
