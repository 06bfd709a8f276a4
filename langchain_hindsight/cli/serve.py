"""``langchain-hindsight serve``: an embedded Hindsight in the foreground."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from langchain_hindsight.errors import HindsightError

_LOOK_EVERY = 0.5


def serve(
    *,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where memory is kept between runs.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="The server's port; a free one unless given.", min=1, max=65535),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the URL and nothing else.")] = False,
) -> None:
    """Run an embedded Hindsight server until Ctrl-C.

    Any HINDSIGHT_API_* in the environment goes to the server: set HINDSIGHT_API_LLM_PROVIDER and
    HINDSIGHT_API_LLM_API_KEY, and it extracts facts.
    """
    from langchain_hindsight.embedded import EmbeddedHindsight

    # SIGTERM ends it as Ctrl-C does: in order, and at any moment from here on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def progress(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    pause = threading.Event()  # never set: only a signal ends the wait
    server = EmbeddedHindsight(data_dir, port=port, on_progress=progress)
    try:
        with server:
            typer.echo(server.url)
            progress(f"Point a client at it with: export HINDSIGHT_API_URL={server.url}")
            progress("Ctrl-C stops it.")
            while server.running:
                pause.wait(_LOOK_EVERY)
    except KeyboardInterrupt:
        progress("Stopped.")
        return
    except HindsightError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo("Error: the server has ended by itself; its log is in the data folder.", err=True)
    raise typer.Exit(1)
