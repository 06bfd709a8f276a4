"""Every example runs as a person would run it, against the real server."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_hindsight import DualBankMemory

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 120.0

DEMO = EXAMPLES / "chatbot_demo.txt"


def run(name, *arguments, typed="", code=0, limit=TIMEOUT):
    """Run an example to its end; give what it printed, warnings and tracebacks included."""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(EXAMPLES / name), *map(str, arguments)],
        input=typed,
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=limit,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    assert "Traceback" not in printed
    assert "Warning" not in printed
    return printed


@pytest.fixture
def who() -> list[str]:
    """A project and a user that no other test has."""
    return ["--project", f"p-{uuid.uuid4().hex[:8]}", "--user", f"u-{uuid.uuid4().hex[:8]}"]


@pytest.mark.parametrize(
    ("name", "project_fact", "life_fact"),
    [
        ("agent.py", "on Fridays at noon", "answers with an example"),
        ("workflow.py", "in PostgreSQL 18", "in metric units"),
        ("classic_chain.py", "rounded to whole cents", "reads her invoices as PDF"),
    ],
)
def test_an_example_remembers_from_one_conversation_to_the_next(
    hindsight_url, name, project_fact, life_fact
):
    printed = run(name, "--url", hindsight_url)
    _, _, tuesday = printed.partition("tuesday  > ")
    assert "This project's memory says: \"" in tuesday
    assert project_fact in tuesday
    assert 'About you I know: "' in tuesday
    assert life_fact in tuesday


def test_the_retrieval_chain_answers_from_both_banks(hindsight_url):
    printed = run("retrieval_chain.py", "--url", hindsight_url)
    assert re.search(r"^project  The billing service is on call", printed, re.MULTILINE)
    assert re.search(r"^life     Ada takes", printed, re.MULTILINE)
    first, second = re.findall(r'The notes say: "([^"]*)"', printed)
    assert "turns of one week" in first
    assert "first week of a month" in second


@pytest.mark.timeout(400)
def test_the_demo_script_remembers_from_one_process_to_the_next_over_a_server_of_its_own():
    printed = run("chatbot.py", "--script", DEMO, limit=360.0)
    assert "Starting an embedded Hindsight" in printed
    assert "demo model: no language model" in printed
    _, _, second = printed.partition("session 2 of 2")
    assert 'About you I know: "I work from Lisbon and start at ten."' in second
    assert "This project's memory says: \"We keep the billing service on PostgreSQL 18" in second
    assert re.search(r"memory  project \d+ . \d+/800 tok   life 1 . \d+/400 tok   \d+ ms", second)
    assert "All answers were as expected" in second


def test_a_script_whose_expectation_does_not_hold_fails_and_says_what_is_missing(
    hindsight_url, tmp_path
):
    script = tmp_path / "wrong.txt"
    script.write_text("Hello\nexpect: Goodbye forever\n", encoding="utf-8")
    printed = run("chatbot.py", "--script", script, "--url", hindsight_url, code=1)
    assert "Expected 'Goodbye forever' in the answer to 'Hello'." in printed


def test_the_chatbot_answers_and_obeys_its_commands(hindsight_url, who):
    typed = (
        "/help\n"
        "/memory\n"
        "/life I take my tea without sugar.\n"
        "The staging server runs Debian.\n"
        "With or without sugar, how do I take my tea?\n"
        "/memory\n"
        "/status\n"
        "/mode read-only\n"
        "/mode sideways\n"
        "/nonsense\n"
        "/quit\n"
    )
    printed = run("chatbot.py", "--url", hindsight_url, *who, typed=typed)
    steps = re.split(r"^you> ", printed, flags=re.MULTILINE)[1:]
    help_, none, life, fact, question, memory, status, mode, wrong, unknown, leaving = steps
    assert "/life TEXT" in help_
    assert "Nothing has been recalled yet" in none
    assert f"Stored in the Life Bank chatbot-life-{who[3]}." in life
    assert "Noted." in fact
    assert re.search(r"life 1 . \d+/400 tok", question)
    assert 'About you I know: "I take my tea without sugar."' in question
    assert "<hindsight-memory>" in memory
    assert "Personal memory" in memory
    assert f"{hindsight_url}, answers" in status
    assert f"chatbot-life-{who[3]}" in status
    assert "0 dead" in status
    assert "Memory mode read-only" in mode
    assert "There is no mode 'sideways'" in wrong
    assert "There is no command /nonsense" in unknown
    assert "Nothing is waiting in the outbox" in leaving


def test_what_is_said_in_read_only_mode_is_not_retained(hindsight_url, who):
    typed = "/mode read-only\nThe secret harbor is Trondheim.\n"
    run("chatbot.py", "--url", hindsight_url, *who, typed=typed)
    with DualBankMemory(hindsight_url, project_bank="chatbot-project", project_id=who[1]) as memory:
        assert memory.recall("Which is the secret harbor, Trondheim?").text == ""


def test_the_life_tool_is_called_when_the_person_asks_for_it_and_only_then(hindsight_url, who):
    typed = "I prefer coffee.\nPlease remember that I prefer green tea.\n"
    printed = run("chatbot.py", "--url", hindsight_url, *who, typed=typed)
    assert printed.count("hindsight_retain_life  ") == 1
    with DualBankMemory(
        hindsight_url,
        project_bank="chatbot-project",
        project_id=who[1],
        life_bank=f"chatbot-life-{who[3]}",
    ) as memory:
        (only,) = memory.recall("Which tea or coffee do I prefer?").life.memories
    assert only.text == 'The user said: "I prefer green tea."'


def test_without_a_life_bank_nothing_of_it_is_offered(hindsight_url, who):
    typed = "/life I like tea.\nPlease remember that I like tea.\n/status\n"
    printed = run("chatbot.py", "--url", hindsight_url, *who, "--no-life", typed=typed)
    assert "There is no Life Bank in this chat" in printed
    assert "I was given no Life Bank" in printed
    assert re.search(r"life +off", printed)


def test_a_server_that_is_not_there_leaves_the_chat_going(who):
    printed = run(
        "chatbot.py", "--url", "http://127.0.0.1:9", *who, typed="Hello, billing service\n/status\n"
    )
    assert "project failed" in printed
    assert "The project bank took no part: " in printed
    assert "Noted." in printed
    assert "does not answer" in printed
    assert re.search(r"Not delivered yet: \d", printed)


def test_what_cannot_work_is_said_in_a_sentence(monkeypatch, who, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    here = ["--url", "http://127.0.0.1:9"]
    assert "OPENAI_API_KEY is not set" in run("chatbot.py", *here, "--model", "openai:gpt-5")
    unknown = run("chatbot.py", *here, "--model", "nobody:knows", code=1)
    assert "nobody:knows cannot be used" in unknown
    absent = run("chatbot.py", *here, "--script", tmp_path / "absent.txt", code=1)
    assert "cannot be read" in absent


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("columns", [60, 80])
def test_in_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_leaves(hindsight_url, who, columns):
    with terminal(columns, "--url", hindsight_url, *who) as (type_, read_until):
        read_until("you> ")
        type_("The harbor has " + ", ".join(f"crane number {n}" for n in range(60)) + ".\r")
        read_until("Noted.")
        read_until("you> ")
        type_("What has the harbor got, by the number of each crane?\r")
        read_until("crane number 5")
        type_("\x03")
        read_until("That turn is taken back")
        read_until("you> ")
        type_("Hello\r")
        answered = read_until("Hello. I am the demo model")
        assert "project" in answered
        read_until("you> ")
        type_("\x04")
        read_until("Nothing is waiting in the outbox")


# Ctrl-C reaches a process only from the terminal that it has made its own.
_OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


@contextlib.contextmanager
def terminal(columns, *arguments) -> Iterator[tuple]:
    """The chatbot at a terminal of so many columns: how to type, and how to wait for a text."""
    import fcntl
    import pty
    import select
    import struct
    import termios
    import time

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_TERMINAL, str(EXAMPLES / "chatbot.py"), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1"},
    )
    os.close(theirs)
    unread = ""

    def type_(text):
        os.write(ours, text.encode())

    def read_until(text):
        nonlocal unread
        deadline = time.monotonic() + TIMEOUT
        while text not in unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([ours], [], [], left)[0]:
                pytest.fail(f"{text!r} was not shown; there was {unread!r}")
            unread += os.read(ours, 65536).decode("utf-8", "replace")
            unread = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", unread)
        shown, _, unread = unread.partition(text)
        return shown + text

    try:
        yield type_, read_until
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
