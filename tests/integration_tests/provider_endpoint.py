"""An endpoint that answers as OpenAI, Anthropic and Gemini do, and notes what it was sent.

The chat model is a boundary that is not ours: the providers' real clients talk to this, so that
what a test sees is what a provider would be sent.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ProviderEndpoint:
    """Answers each request with the next of ``answers``: words, or ``call:<tool>``."""

    def __init__(self, *answers):
        self.requests = []
        self._answers = list(answers)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            # HTTP/1.0, so that no provider's client is left with an open connection.
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(body)
                answer = endpoint._answers.pop(0)
                kind, text = _answer(self.path, body, answer)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *args):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(path, body, answer):
    if path.endswith("/chat/completions"):
        if body.get("stream"):
            return "text/event-stream", _openai_stream(answer)
        return "application/json", _json(_openai(answer))
    if path.endswith("/messages"):
        return "application/json", _json(_anthropic(answer))
    assert path.endswith(":generateContent"), path
    return "application/json", _json(_gemini(answer))


def _json(value):
    return json.dumps(value).encode()


def _openai(answer):
    message = {"role": "assistant", "content": answer}
    if answer.startswith("call:"):
        call = {"id": "c1", "type": "function", "function": {"name": answer[5:], "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "r",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _openai_stream(answer):
    words = answer.split(" ")
    deltas = [word if not at else f" {word}" for at, word in enumerate(words)]
    events = [_chunk({"role": "assistant", "content": ""})]
    events += [_chunk({"content": one}) for one in deltas]
    events += [_chunk({}, finish="stop")]
    lines = [f"data: {json.dumps(one)}\n\n" for one in events]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return head | {"choices": [choice]}


def _anthropic(answer):
    content = {"type": "text", "text": answer}
    if answer.startswith("call:"):
        content = {"type": "tool_use", "id": "c1", "name": answer[5:], "input": {}}
    return {
        "id": "r",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [content],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _gemini(answer):
    part = {"text": answer}
    if answer.startswith("call:"):
        part = {"functionCall": {"name": answer[5:], "args": {}}}
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }


def openai(url, **settings):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="m", base_url=f"{url}/v1", api_key="none", max_retries=0, **settings)


def anthropic(url):
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model="claude-m", base_url=url, api_key="none", max_retries=0)


def gemini(url):
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model="gemini-m", base_url=url, api_key="none", max_retries=1)


def spoken(body):
    """What a provider reads of a request: its system text, and (role, text) of what follows."""
    if "contents" in body:
        return _gemini_spoken(body)
    system = _text(body.get("system"))
    messages = [(one["role"], _text(one.get("content"))) for one in body["messages"]]
    while messages and messages[0][0] in {"system", "developer"}:
        system += messages.pop(0)[1]
    return system, messages


def _gemini_spoken(body):
    system = _text((body.get("systemInstruction") or {}).get("parts"))
    return system, [(one.get("role", "user"), _text(one["parts"])) for one in body["contents"]]


def _text(content):
    if content is None or isinstance(content, str):
        return content or ""
    with contextlib.suppress(TypeError):
        return "".join(one.get("text", "") for one in content)
    return ""
