"""A server that gives canned answers after a fixed delay, in a process of its own.

It stands where Hindsight's own work, on the same cores, would hide ours. Delay and size of the
answer are part of the URL, so that one process serves every setting. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from material import memories

_HELD = 10
"""How many times more memories a bank holds than it recalls."""


@dataclass(frozen=True, slots=True)
class Stub:
    """A stub server that runs."""

    address: str

    async def recalls(self) -> dict[str, int]:
        """How often each bank was recalled from so far."""
        from aiohttp import ClientSession

        async with ClientSession() as session, session.get(f"{self.address}/asked") as answer:
            found: dict[str, int] = await answer.json()
            return found

    def url(self, *, delay_ms: int, candidates: int) -> str:
        """The URL of a Hindsight that takes so long and recalls so much."""
        return f"{self.address}/{delay_ms}/{candidates}"


@contextlib.contextmanager
def stub_server() -> Iterator[Stub]:
    """Run one."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield Stub(process.stdout.readline().strip())
        process.stdin.close()


@cache
def stored(bank_id: str, count: int) -> list[bytes]:
    """A bank's memories, shaped as Hindsight 1.1.0 answers."""
    results: list[dict[str, Any]] = [
        {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{bank_id}/{number}")),
            "text": text,
            "type": "world",
            "entities": None,
            "context": "",
            "occurred_start": None,
            "occurred_end": None,
            "mentioned_at": f"2026-03-{number % 28 + 1:02}T10:00:00+00:00",
            "document_id": f"{bank_id}-{number}",
            "metadata": {"thread": "t-1", "speaker": "human"},
            "chunk_id": f"{bank_id}_{number}_0",
            "tags": ["project:bench"],
            "source_fact_ids": None,
            "scores": {
                "final": 0.9 - number % 50 / 100,
                "reranker": None,
                "semantic": 0.8 - number % 60 / 200,
                "keyword": None,
            },
        }
        for number, text in enumerate(memories(count, bank_id))
    ]
    return [json.dumps(result).encode() for result in results]


def recalled(bank_id: str, query: str, candidates: int) -> bytes:
    """A bank's answer: other memories for another question, the same for the same."""
    held = stored(bank_id, _HELD * candidates)
    start = zlib.crc32(query.encode()) % len(held)
    results = b",".join((held + held)[start : start + candidates])
    return b'{"results":[%b],"trace":null,"entities":null,"chunks":null}' % results


def _answer(method: str, path: str, body: Any) -> bytes | dict[str, Any] | None:
    """What Hindsight would say, or None for what no benchmark asks."""
    _, bank_id, what = path.removeprefix("/v1/default/").split("/", 2)
    if method == "POST" and what == "memories":
        operation = body.get("operation_id") or str(uuid.uuid4())
        taken = {"success": True, "bank_id": bank_id, "items_count": len(body["items"])}
        return {**taken, "async": True, "operation_id": operation}
    if method == "GET" and what.startswith("operations/"):
        return {"operation_id": what.rpartition("/")[2], "status": "completed"}
    if method == "GET" and what == "config":
        chunks = {"retain_extraction_mode": "chunks"}
        return {"bank_id": bank_id, "config": chunks, "overrides": {}}
    if method == "GET" and what == "mental-models":
        return {"items": [], "total": 0, "limit": 100, "offset": 0}
    return None


async def _serve() -> None:
    from aiohttp import web

    recalls: Counter[str] = Counter()

    async def asked(_: web.Request) -> web.Response:
        return web.json_response(recalls)

    async def handle(request: web.Request) -> web.Response:
        _, delay_ms, candidates, *rest = request.path.split("/")
        path = "/" + "/".join(rest)
        if path.endswith("/memories/recall"):
            recall = await request.json()
            bank_id = path.split("/")[-3]
            recalls[bank_id] += 1
            await asyncio.sleep(int(delay_ms) / 1000)
            answer = recalled(bank_id, recall["query"], int(candidates))
            return web.Response(body=answer, content_type="application/json")
        body = await request.json() if request.can_read_body else None
        found = _answer(request.method, path, body)
        if found is None:
            return web.json_response({"detail": "not here"}, status=404)
        return web.json_response(found)

    app = web.Application()
    app.router.add_get("/asked", asked)
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}\n")
    sys.stdout.flush()

    parent_is_gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(parent_is_gone.set)

    threading.Thread(target=watch, daemon=True).start()
    await parent_is_gone.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
