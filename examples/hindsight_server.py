"""Where the examples find Hindsight: the server named by ``--url`` or ``HINDSIGHT_API_URL``.

Without either, an embedded one runs while the example does.

It keeps its data in a folder that is removed afterwards, so that an example does the
same each time. A program of yours leaves the folder out, and its memory stays.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hindsight_server() -> Iterator[str]:
    """Give the URL of a Hindsight server, running while the ``with`` block does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="a Hindsight server of yours, in place of an embedded one")
    given = parser.parse_args().url or os.environ.get("HINDSIGHT_API_URL")
    if given:
        yield given
        return
    from langchain_hindsight.embedded import EmbeddedHindsight

    print("Starting an embedded Hindsight ...", file=sys.stderr)
    with throwaway_folder() as folder, EmbeddedHindsight(folder) as server:
        yield server.url


@contextmanager
def throwaway_folder() -> Iterator[Path]:
    """A data folder for an embedded server and for the outbox, removed afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="hindsight-example-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o711)  # under root, PostgreSQL runs as another account, and must pass through
        # What waits for a server that is gone for good must not wait in the person's own outbox.
        outbox = f"sqlite:///{(folder / 'outbox.db').as_posix()}"
        os.environ.setdefault("HINDSIGHT_OUTBOX__URL", outbox)
        yield folder
