"""The chatbot's parts that need no server: its scripts, what it shows, and which model it takes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from chat_model import ModelUnavailableError, choose_model
from chatbot_script import ScriptError, Step, read_script
from chatbot_view import Answer, memory_line
from demo_model import DemoModel
from rich.console import Console

from langchain_hindsight import BankRecall, HindsightError, RecalledMemory, RecallResult

DEMO = Path(__file__).parents[2] / "examples" / "chatbot_demo.txt"


def script(tmp_path, text):
    path = tmp_path / "script.txt"
    path.write_text(text, encoding="utf-8")
    return read_script(path)


def test_a_script_is_read_session_by_session(tmp_path):
    sessions = script(
        tmp_path, "# why\nhello\nexpect: Hi\nexpect: there\n\n/help\n--- new session ---\nbye\n"
    )
    assert sessions == [[Step("hello", ("Hi", "there")), Step("/help")], [Step("bye")]]


def test_the_demo_script_has_two_sessions_and_the_second_expects_something():
    first, second = read_script(DEMO)
    assert first
    assert any(step.expected for step in second)


@pytest.mark.parametrize("text", ["", "# nothing\n", "--- new session ---\n", "expect: Hi\nhello"])
def test_a_script_that_can_prove_nothing_is_refused(tmp_path, text):
    with pytest.raises(ScriptError):
        script(tmp_path, text)


def test_a_script_that_is_not_there_is_said_plainly(tmp_path):
    with pytest.raises(ScriptError, match="cannot be read"):
        read_script(tmp_path / "absent.txt")


def test_an_expectation_holds_whatever_the_case_and_the_spacing():
    step = Step("?", ("on Fridays at noon", "Saturday"))
    assert step.missing("Deployed ON\nfridays   at noon.") == ("Saturday",)


def bank(limit, *, found=1, tokens=0, error=None, ms=1.0):
    memories = tuple(RecalledMemory(id=str(n), text="x") for n in range(found))
    return BankRecall("b", memories, tokens, limit, ms, error)


RECALLED = RecallResult(
    text="...", project=bank(800, found=3, tokens=212, ms=34.4), life=bank(400, tokens=40, ms=12.0)
)


def test_a_recall_is_folded_into_one_line():
    assert memory_line(RECALLED, wide=True) == (
        "memory  project 3 \u00b7 212/800 tok   life 1 \u00b7 40/400 tok   34 ms"
    )


def test_the_line_fits_sixty_columns():
    full = RecallResult(
        project=bank(800, found=99, tokens=800, ms=10_000.0),
        life=bank(400, found=99, tokens=400),
    )
    assert len(memory_line(full, wide=False)) <= 60


def test_the_line_says_which_bank_failed():
    failed = RecallResult(project=bank(800), life=bank(400, error=HindsightError("away")))
    assert "life failed" in memory_line(failed, wide=True)
    assert "project 1" in memory_line(failed, wide=True)


def test_the_line_says_why_nothing_was_asked():
    assert memory_line(RecallResult(reason="mode is ignored"), wide=True).endswith("is ignored")


def shown(pieces, width):
    out = io.StringIO()
    answer = Answer(Console(file=out, width=width or 80), width)
    for piece in pieces:
        answer.add(piece)
    answer.end()
    assert answer.text == "".join(pieces)
    return out.getvalue()


@pytest.mark.parametrize("width", [15, 16])
def test_an_answer_is_broken_between_words(width):
    pieces = ["The quick", " brown fo", "x jumps over", " the lazy dog"]
    lines = shown(pieces, width).splitlines()
    assert [line.rstrip() for line in lines] == [
        "The quick brown",
        "fox jumps over",
        "the lazy dog",
    ]


def test_in_a_pipe_no_answer_is_broken():
    assert shown(["word "] * 50, None) == "word " * 50 + "\n"


def test_line_breaks_of_an_answer_are_kept():
    assert shown(["one\n", "\ntwo and three"], 13) == "one\n\ntwo and three\n"


def test_an_answer_moves_no_cursor_and_writes_no_markup():
    text = shown(["\x1b[2J\x1b]0;title\x07[red]plain[/red] \x9b1A"], 80)
    assert not any(ord(char) < 32 for char in text.replace("\n", ""))
    assert "[red]plain[/red]" in text


def test_without_a_model_the_demo_model_answers_and_is_named():
    chosen = choose_model(None, watched=False)
    assert isinstance(chosen.model, DemoModel)
    assert "no language model" in chosen.name
    assert "--model" in chosen.note


@pytest.mark.parametrize("key", [None, "", "  "])
def test_without_a_key_it_names_the_variable_and_falls_back(monkeypatch, key):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    chosen = choose_model("anthropic:claude-sonnet-4-5", watched=False)
    assert isinstance(chosen.model, DemoModel)
    assert "ANTHROPIC_API_KEY" in chosen.note


def test_without_the_providers_package_it_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_ollama", None)
    with pytest.raises(ModelUnavailableError, match=r"-m pip install langchain-ollama$"):
        choose_model("ollama:llama3.2", watched=False)


def test_a_model_that_nobody_knows_is_said_in_one_line():
    with pytest.raises(ModelUnavailableError, match="nobody:knows") as raised:
        choose_model("nobody:knows", watched=False)
    assert "\n" not in str(raised.value)
