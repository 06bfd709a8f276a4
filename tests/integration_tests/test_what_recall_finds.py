"""Recall judged by its outcome: whatever a question is surrounded by, it finds what answers it."""

from __future__ import annotations

import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from remembering import open_memory

KEPT = [
    HumanMessage("Which night shall the stock-taking be in?"),
    AIMessage("Most shops take the last Sunday of January."),
    HumanMessage("OK, make it that one."),
    AIMessage("The invoices are rendered by headless Chrome in a container."),
    HumanMessage("The oven in the old kitchen runs fifteen degrees hot."),
    AIMessage("Grandmother's recipe wants hazelnuts, toasted for ten minutes."),
    HumanMessage("Wir streichen das Kinderzimmer in einem dunklen Blau."),
    HumanMessage("我们决定把数据库迁移到法兰克福的机房。"),
]
ASKED = {
    "What renders the invoices?": "headless Chrome",
    "How hot does our oven run?": "fifteen degrees hot",
    "In welcher Farbe streichen wir das Kinderzimmer?": "dunklen Blau",
    "数据库迁移到哪个机房?": "法兰克福",
}
PASTES = {
    "log": "\n".join(
        f"2026-03-05T12:00:{at:02d}Z WARN [worker-{at}] acme.pool - timed out after {at * 77} ms"
        for at in range(60)
    ),
    "trace": "Traceback (most recent call last):\n"
    + "\n".join(f'  File "/srv/module_{at}.py", line {at}, in run_{at}' for at in range(30))
    + "\nOSError: [Errno 28] No space left on device",
    "json": json.dumps({f"key_{at}": {"state": "pending", "sum": at * 1.5} for at in range(60)}),
    "prose": "About sixty people came to the old town hall and listened to a talk on gardens. "
    * 20,
}


@pytest.fixture(scope="module")
def memory(hindsight_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outbox")
    outbox = {"url": f"sqlite:///{(folder / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, f"finds-{folder.name}-{id(folder)}", outbox=outbox) as opened:
        opened.retain(KEPT, thread_id="kept").raise_for_error()
        assert opened.flush(timeout=60).waiting == 0
        yield opened


@pytest.mark.parametrize("paste", PASTES.values(), ids=PASTES)
@pytest.mark.parametrize(("question", "evidence"), ASKED.items())
def test_a_question_beside_a_paste_finds_what_it_finds_alone(memory, question, evidence, paste):
    for message in (question, f"{paste}\n\n{question}", f"{question}\n\n{paste}"):
        assert evidence in memory.recall([HumanMessage(message)]).text


def test_a_follow_up_finds_what_the_talk_was_about(memory):
    talk = [HumanMessage("What renders the invoices?"), AIMessage("Let me think about it.")]
    assert "headless Chrome" not in memory.recall([HumanMessage("And since when?")]).text
    assert "headless Chrome" in memory.recall([*talk, HumanMessage("And since when?")]).text


def test_an_answer_is_found_by_what_it_answers(memory):
    assert "make it that one" in memory.recall("When is the stock-taking?").text


def test_talk_of_something_else_does_not_hide_what_a_question_asks_for(memory):
    talk = [
        HumanMessage("Can you recommend a museum for a rainy day with two teenagers?"),
        AIMessage("The museum of technology has pendulums and a flight simulator."),
    ]
    for question, evidence in ASKED.items():
        assert evidence in memory.recall([*talk, HumanMessage(question)]).text
