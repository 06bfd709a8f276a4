"""A real Hindsight server on this machine, with nothing to set up: PostgreSQL, embeddings and API.

Promises: importing and constructing start nothing; everything listens on 127.0.0.1 alone; memory
stays in a data folder between runs; any number of processes share the server of one data folder;
and when the last of them has stopped, or died, nothing that was started keeps running.

The server has no password of its own: whoever may open a connection on this machine may use it.
"""

from __future__ import annotations

from langchain_hindsight.embedded.errors import EmbeddedServerError
from langchain_hindsight.embedded.server import EmbeddedHindsight

__all__ = ["EmbeddedHindsight", "EmbeddedServerError"]
