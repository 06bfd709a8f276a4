"""Chat in a terminal with an agent that remembers, over both banks.

``python examples/chatbot.py --help`` lists the options; ``/help`` inside lists the commands. What
is said is retained to the Project Bank; the Life Bank holds only what was asked to be remembered.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from chat_model import ModelUnavailableError, choose_model
from chatbot_conversation import LIFE_BANK, PROJECT_BANK, Chat, Place
from chatbot_script import ScriptError, Step, read_script
from chatbot_view import View

from langchain_hindsight import DualBankMemory, HindsightError, HindsightSettings

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    model: str | None
    url: str | None
    project: str | None
    user: str | None
    thread: str | None
    life: bool
    script: Path | None
    session: int | None
    data_dir: Path | None


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="A chat model, such as openai:gpt-5, anthropic:claude-sonnet-4-5 or "
            "ollama:llama3.2; without one, a small demo model answers."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="A Hindsight server of yours, in place of the embedded one."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="The project that is remembered.", show_default="demo")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Whose Life Bank it is.", show_default="your login")
    ] = None,
    thread: Annotated[
        str | None, typer.Option(help="Name this conversation.", show_default="a new name")
    ] = None,
    no_life: Annotated[bool, typer.Option("--no-life", help="Leave the Life Bank out.")] = False,
    script: Annotated[
        Path | None, typer.Option(help="Play this file instead of asking at the keyboard.")
    ] = None,
    session: Annotated[
        int | None, typer.Option(help="Play this session of the script alone.", min=1)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the embedded server keeps memory between runs.")
    ] = None,
) -> None:
    """Chat with an agent that remembers what you did, and how you like it."""
    options = Options(model, url, project, user, thread, not no_life, script, session, data_dir)
    view = View()
    try:
        code = run(view, options)
    except KeyboardInterrupt:
        view.note("Stopped.")
        code = _INTERRUPTED
    except (HindsightError, ModelUnavailableError, ScriptError, ImportError) as error:
        view.warn(f"Error: {error}")
        code = 1
    raise typer.Exit(code)


def run(view: View, options: Options) -> int:
    """Chat, or play a script; give the exit code."""
    if options.script is None:
        with _chat(view, options) as chat:
            return _talk(view, chat)
    sessions = read_script(options.script)
    if options.session is None:
        return _play_sessions(view, options, len(sessions))
    if options.session > len(sessions):
        msg = f"The script {options.script} has {len(sessions)} sessions, not {options.session}."
        raise ScriptError(msg)
    with _chat(view, options) as chat:
        return _play(view, chat, sessions[options.session - 1])


@contextlib.contextmanager
def _chat(view: View, options: Options) -> Iterator[Chat]:
    """A chat, with all that it needs running while the block does."""
    settings = HindsightSettings()
    chosen = choose_model(options.model, watched=view.watched)
    user = options.user or _login()
    with _server(view, options, settings) as (url, described):
        at = Place(
            project=options.project or "demo",
            user=user,
            thread=options.thread or f"chat-{uuid.uuid4().hex[:8]}",
            url=url,
            server=described,
        )
        memory = DualBankMemory(
            url=url,
            project_bank=PROJECT_BANK,
            project_id=at.project.replace("{", "{{").replace("}", "}}"),
            life_bank=LIFE_BANK if options.life else None,
            settings=settings,
        )
        with memory, _warnings_shown(view):
            chat = Chat(view, memory, chosen, at)
            chat.greet(typed=options.script is None)
            yield chat


@contextlib.contextmanager
def _server(view: View, options: Options, settings: HindsightSettings) -> Iterator[tuple[str, str]]:
    """The server's URL and its description: the person's own, else an embedded one."""
    own = _own_url(options, settings)
    if own:
        yield own, own
        return
    from langchain_hindsight.embedded import EmbeddedHindsight

    with view.waiting("Starting an embedded Hindsight ...") as status:
        server = EmbeddedHindsight(options.data_dir, on_progress=status.update)
        url = server.start()
    try:
        yield url, f"{url} (embedded)"
    finally:
        with view.waiting("Stopping the embedded Hindsight ..."):
            server.stop()


def _talk(view: View, chat: Chat) -> int:
    """Answer what is typed until there is no more."""
    while True:
        view.console.print()
        try:
            line = _read()
        except KeyboardInterrupt:
            view.console.print()
            view.note("Ctrl-D or /quit leaves.")
            continue
        except EOFError:
            view.console.print()
            break
        if line.lower() == "/quit":
            break
        if line:
            chat.respond(line)
    chat.leave()
    return 0


def _play(view: View, chat: Chat, steps: Sequence[Step]) -> int:
    """Type a script's lines; give 1 if an answer lacks something, or something is left behind."""
    faults: list[str] = []
    for step in steps:
        if step.line.lower() == "/quit":
            break
        view.console.print()
        view.say(f"you> {step.line}", "bold")
        answer = chat.respond(step.line)
        faults += [
            f"Expected {text!r} in the answer to {step.line!r}." for text in step.missing(answer)
        ]
    view.console.print()
    if not chat.leave():
        faults.append("Not everything said is stored.")
    for fault in faults:
        view.warn(fault)
    return 1 if faults else 0


def _play_sessions(view: View, options: Options, sessions: int) -> int:
    """Play each session in a process of its own, over one server; stop at the first that fails."""
    from hindsight_server import throwaway_folder

    settings = HindsightSettings()
    with contextlib.ExitStack() as stack:
        if options.data_dir is None and _own_url(options, settings) is None:
            view.note("This runs over a data folder of its own, which is removed afterwards.")
            options = replace(options, data_dir=stack.enter_context(throwaway_folder()))
        url, _ = stack.enter_context(_server(view, options, settings))
        arguments = _arguments(options, url)
        for number in range(1, sessions + 1):
            view.rule(f"session {number} of {sessions}, in a process of its own")
            sys.stdout.flush()
            command = [sys.executable, __file__, *arguments, "--session", str(number)]
            code = subprocess.run(command, check=False).returncode  # noqa: S603 - this very program
            if code:
                view.warn(f"Session {number} of {sessions} failed.")
                return code
        view.console.print()
    view.say(f"Sessions played: {sessions}. All answers were as expected.", "green")
    return 0


def _arguments(options: Options, url: str) -> list[str]:
    """A session's command line; project and user are new, unless named, so that each run is alike.

    Each session makes up a thread of its own, unless one was named.
    """
    fresh = f"demo-{uuid.uuid4().hex[:8]}"
    values = {
        "--script": str(options.script),
        "--url": url,
        "--project": options.project or fresh,
        "--user": options.user or fresh,
        "--model": options.model,
        "--thread": options.thread,
    }
    given = [part for name, value in values.items() if value for part in (name, value)]
    return given if options.life else [*given, "--no-life"]


def _own_url(options: Options, settings: HindsightSettings) -> str | None:
    """The person's own server, by option, environment or configuration file."""
    return options.url or (settings.url if "url" in settings.model_fields_set else None)


def _read() -> str:
    """One line; a pipe's is shown too, so that what comes out reads like a conversation."""
    if sys.stdin.isatty():
        return input("you> ").strip()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    print(f"you> {line.rstrip()}")
    return line.strip()


def _login() -> str:
    try:
        return getpass.getuser().strip() or "me"
    except (ImportError, KeyError, OSError):  # a system without accounts, or without this one
        return "me"


@contextlib.contextmanager
def _warnings_shown(view: View) -> Iterator[None]:
    """Show the library's warnings as notes; what a recall lacks is said with its line already."""
    logger = logging.getLogger("langchain_hindsight")
    handler = _Shown(view)
    logger.addHandler(handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)


class _Shown(logging.Handler):
    """Shows warnings in the chat."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "langchain_hindsight.recall":
            self._view.warn(record.getMessage())


if __name__ == "__main__":
    with contextlib.suppress(ImportError):  # where there is no readline, the console edits lines
        import readline  # noqa: F401 - gives `input` its history
    app()
