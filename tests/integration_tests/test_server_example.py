"""The example server runs under ``langgraph dev``: two people, threads at once, nothing blocks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest
from faulty_network import closed_port
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError, NotFoundError
from remembering import stored

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "examples" / "server"
BLOCKED = ("BlockingError", "Blocking call")
LIKES = {"anna": "I like my tea with lemon", "ben": "I like my tea with milk"}


def _python():
    """The interpreter that has LangGraph's development server."""
    folder = Path(sys.prefix) / "server"
    beside = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return str(beside) if beside.is_file() else sys.executable


@pytest.fixture
def people():
    """Two people whom no other run knows, and their tokens."""
    run = uuid.uuid4().hex[:8]
    return {f"{name}-{run}": uuid.uuid4().hex for name in LIKES}


@pytest.fixture
def server(hindsight_url, people, tmp_path):
    """The URL of ``langgraph dev`` over the example, and the path of what it prints."""
    port, log = closed_port(), tmp_path / "server.log"
    command = [_python(), "-X", "utf8", "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    env = {
        **os.environ,
        "EXAMPLE_SERVER_USERS": json.dumps({token: name for name, token in people.items()}),
        "HINDSIGHT_API_URL": hindsight_url,
        "HINDSIGHT_RECALL__TIMEOUT": "60",
        "LANGSMITH_TRACING": "false",
        "PYTHONPATH": str(ROOT),
    }
    place = tmp_path / "server"  # what the server keeps of its own is kept beside the config
    place.mkdir()
    config = json.loads((PLACE / "langgraph.json").read_text(encoding="utf-8"))
    config["dependencies"] = [str((PLACE / one).resolve()) for one in config["dependencies"]]
    config["graphs"] = {n: str(PLACE / path) for n, path in config["graphs"].items()}
    config["auth"]["path"] = str(PLACE / config["auth"]["path"])
    (place / "langgraph.json").write_text(json.dumps(config), encoding="utf-8")
    with log.open("w", encoding="utf-8") as printed:
        running = subprocess.Popen(
            [*command, "--port", str(port)], cwd=place, env=env, stdout=printed, stderr=printed
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(url, running, log)
            yield url, log
        finally:
            running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(20)
            running.kill()
            running.wait()


def _wait_until_up(url, running, log):
    waiting = threading.Event()
    for _ in range(600):
        assert running.poll() is None, log.read_text(encoding="utf-8")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url}/ok", timeout=5).close()
            return
        waiting.wait(0.1)
    pytest.fail(log.read_text(encoding="utf-8"))


def _signed_in(url, token):
    return get_client(url=url, headers={"Authorization": f"Bearer {token}"})


async def _until(found):
    async with asyncio.timeout(120):
        while not await asyncio.to_thread(found):  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(0.2)


async def _say(client, thread, text, **more):
    given = {"messages": [{"role": "human", "content": text}]}
    state = await client.runs.wait(thread, "agent", input=given, **more)
    return state["messages"][-1]["content"]


@pytest.mark.timeout(300)
async def test_two_people_at_once_are_each_known_and_none_is_shown_the_other(
    server, people, hindsight_url
):
    url, log = server

    async def told(name, client):
        thread = (await client.threads.create())["thread_id"]
        await _say(client, thread, f"Please remember that {LIKES[name.partition('-')[0]]}.")

    async def asked(name, client, pretended):
        # Whatever a client writes of itself into its config or context, it is who signed in.
        thread = (await client.threads.create())["thread_id"]
        config = {"configurable": {"user_id": pretended, "langgraph_auth_user_id": pretended}}
        answer = await _say(client, thread, "How do I like my tea?", config=config)
        own, other = ("lemon", "milk") if name.startswith("anna") else ("milk", "lemon")
        return own in answer, other in answer

    async with contextlib.AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(_signed_in(url, token))
            for name, token in people.items()
        }
        await asyncio.gather(*(told(*one) for one in clients.items()))
        for name in clients:  # a busy server may take a note later than the tool waits for it
            await _until(lambda: stored(hindsight_url, f"example-server-life-{name}"))  # noqa: B023
        results = await asyncio.gather(
            *(asked(*one, other) for one in clients.items() for other in [*clients] * 3)
        )
    printed = log.read_text(encoding="utf-8")
    assert results == [(True, False)] * 12, printed
    assert not [one for one in BLOCKED if one in printed], printed
    for name in clients:
        held = "\n".join(stored(hindsight_url, f"example-server-life-{name}"))
        assert LIKES[name.partition("-")[0]] in held
        assert held.count("tea") == 1


@pytest.mark.timeout(300)
async def test_who_has_not_signed_in_is_refused_and_another_persons_thread_is_not_to_be_had(
    server, people
):
    url, _ = server
    mine, theirs = people.values()
    async with _signed_in(url, mine) as first, _signed_in(url, theirs) as second:
        thread = (await first.threads.create())["thread_id"]
        with pytest.raises(NotFoundError):
            await second.threads.get(thread)
    async with _signed_in(url, "unknown") as nobody:
        with pytest.raises(AuthenticationError):
            await nobody.threads.create()


def _posted(url, body, **headers):
    request = urllib.request.Request(
        f"{url}/runs/wait",
        data=body.encode(),
        headers={"Content-Type": "application/json"} | headers,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.timeout(300)
def test_the_call_that_the_docs_show_is_answered_and_no_studio_gets_in_without_a_token(
    server, people
):
    url, _ = server
    page = (ROOT / "docs" / "tenants.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"runs/wait .*\n\s+-d '(.*)'", page)
    token = next(iter(people.values()))
    answer = _posted(url, body, Authorization=f"Bearer {token}")
    assert answer["messages"][-1]["type"] == "ai"
    with pytest.raises(urllib.error.HTTPError) as refused:
        _posted(url, body, **{"x-auth-scheme": "langsmith"})
    with refused.value as answer:
        assert answer.code in {401, 403}
