"""Embeddings without a model hub: wordllama behind an OpenAI-compatible ``/v1/embeddings``.

The model (256 dimensions, English first) ships in wordllama's wheel and is loaded from there, so
nothing is downloaded. The endpoint listens on 127.0.0.1 and wants the key it was started with.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from langchain_hindsight.embedded.environment import LOOPBACK, Piece

logger = logging.getLogger(__name__)

MODEL = "wordllama"
DIMENSIONS = 256
_LARGEST_BODY = 64 * 1024 * 1024


class Embedder(Protocol):
    """Turns texts into vectors."""

    def __call__(self, texts: list[str]) -> tuple[Any, int]:
        """Give an array of shape ``(len(texts), DIMENSIONS)``, float32, and the tokens read."""


class RequestError(Exception):
    """A request that cannot be answered; the message goes back to whoever sent it."""


def load_wordllama() -> Embedder:
    """Load the bundled model, offline."""
    import numpy as np
    import wordllama

    model = wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, dim=DIMENSIONS, disable_download=True
    )
    lock = threading.Lock()

    def embed(texts: list[str]) -> tuple[Any, int]:
        with lock:  # the tokenizer refuses to be used by two threads at once
            vectors = model.embed(texts, norm=False)
            tokens = sum(sum(encoded.attention_mask) for encoded in model.tokenize(texts))
        # A text without a known token has the zero vector, which is near nothing; dividing by its
        # length would give NaN, which PostgreSQL refuses.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return unit.astype("<f4"), tokens

    return embed


def answer(request: Any, embed: Embedder) -> dict[str, Any]:  # noqa: ANN401 - JSON from outside
    """Answer one request of OpenAI's embeddings API.

    Args:
        request: The decoded body: ``input`` (a text or a list of texts), ``encoding_format``
            (``"float"``, the default, or ``"base64"``), ``dimensions``.
        embed: What turns texts into vectors.

    Raises:
        RequestError: The body is not such a request.
    """
    if not isinstance(request, dict):
        msg = "The body must be a JSON object."
        raise RequestError(msg)
    texts = _texts(request.get("input"))
    if request.get("dimensions") not in (None, DIMENSIONS):
        msg = f"This model gives {DIMENSIONS} dimensions and no other number."
        raise RequestError(msg)
    vectors, tokens = embed(texts)
    encode = _encoder(request.get("encoding_format") or "float")
    return {
        "object": "list",
        "model": MODEL,
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(vector)}
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


class EmbeddingsEndpoint:
    """The endpoint, served by threads of this process between ``start`` and ``stop``."""

    def __init__(self, embed: Embedder | None = None) -> None:
        """Prepare the endpoint; ``embed`` is the bundled model unless given."""
        self._embed = embed
        self._key = secrets.token_urlsafe(24)
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Piece:
        """Load the model and serve; give the base URL and the key."""
        handler = _handler(self._embed or load_wordllama(), self._key)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()
        return Piece(f"http://{LOOPBACK}:{self._server.server_address[1]}/v1", self._key)

    def stop(self) -> None:
        """Stop serving."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None


def _texts(given: Any) -> list[str]:  # noqa: ANN401 - JSON from outside
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        msg = "input must be a text or a list of texts; token ids are not understood."
        raise RequestError(msg)
    return texts


def _encoder(encoding: Any) -> Any:  # noqa: ANN401 - JSON from outside
    if encoding == "float":
        return lambda vector: vector.tolist()
    if encoding == "base64":
        return lambda vector: base64.b64encode(vector.tobytes()).decode("ascii")
    msg = "encoding_format must be float or base64."
    raise RequestError(msg)


def _handler(embed: Embedder, key: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet, or each answer waits for an ACK
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            status, body = self._respond()
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            if status != HTTPStatus.OK:
                # The rest of a refused body was not read, so the connection cannot go on.
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(payload)

        def _respond(self) -> tuple[HTTPStatus, dict[str, Any]]:
            if not hmac.compare_digest(
                self.headers.get("Authorization", "").encode(), f"Bearer {key}".encode()
            ):
                return HTTPStatus.UNAUTHORIZED, _failure("A key is needed.")
            if self.path.rstrip("/") != "/v1/embeddings":
                return HTTPStatus.NOT_FOUND, _failure("There is only /v1/embeddings here.")
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > _LARGEST_BODY:
                return HTTPStatus.BAD_REQUEST, _failure("Content-Length is missing or too large.")
            try:
                request = json.loads(self.rfile.read(int(length)))
                return HTTPStatus.OK, answer(request, embed)
            except (RequestError, ValueError) as error:
                return HTTPStatus.BAD_REQUEST, _failure(str(error))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - inherited
            logger.debug(format, *args)

    return Handler


def _failure(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}
