"""What is searched for: the person's words, helped by the talk before, within every cap."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_hindsight.budget import count_tokens
from langchain_hindsight.fence import INJECTED_KEY, render
from langchain_hindsight.pasted import take_apart
from langchain_hindsight.query import MAX_QUERY_TOKENS, compose_query, message_text, turn_message
from langchain_hindsight.recall_result import RecalledMemory

BLOCK = render([RecalledMemory(id="m", text="A remembered zebra.")], ())
NO_WORDS = "the message has no words to search for"

any_text = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=80),
    st.text("ab 🙂\n`~{};.\ud800字", max_size=200),
    st.builds(
        str.__mul__,
        st.sampled_from(["字", "ꙮ", "a b ", "!", "🙂", "```\n", "x\n"]),
        st.integers(0, 900),
    ),
)
threads = st.lists(
    st.one_of(
        st.builds(HumanMessage, any_text),
        st.builds(AIMessage, any_text),
        st.builds(ToolMessage, any_text, tool_call_id=st.just("1")),
        st.builds(HumanMessage, st.lists(st.builds(dict, type=st.just("text"), text=any_text))),
    ),
    max_size=6,
)


def composed(of: str | Sequence[object], *, turns: int = 2, chars: int = 1200) -> str:
    return compose_query(of, context_turns=turns, max_query_chars=chars).text


@given(st.one_of(any_text, threads), st.integers(0, 3), st.integers(1, 3000))
def test_a_query_keeps_to_its_caps_and_has_words_or_there_is_a_reason(of, turns, chars):
    query = compose_query(of, context_turns=turns, max_query_chars=chars)
    assert bool(query.text) != bool(query.reason)
    assert len(query.text) <= chars
    assert count_tokens(query.text) <= MAX_QUERY_TOKENS
    assert any(map(str.isalnum, query.text)) == bool(query.text)


@given(any_text, threads)
def test_there_is_a_query_wherever_the_message_has_words(text, earlier):
    query = compose_query([*earlier, HumanMessage(text)], context_turns=2, max_query_chars=400)
    visible = text.replace("\u3164", "").replace("\uffa0", "").replace("\u115f", "")
    if any(char.isalnum() for char in visible.replace("\u1160", "")):
        assert query.text
    if not any(map(str.isalnum, text)):
        assert query.reason == NO_WORDS


@pytest.mark.parametrize(
    "message",
    ["", " ", "👍", "?!", "…", "___", "\u200b", "\ud800", "\x00", BLOCK,
     [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], []],
    ids=repr,
)  # fmt: skip
def test_a_message_without_words_makes_no_query_whatever_was_said_before(message):
    thread = [HumanMessage("Tell me about zebras."), AIMessage("Gladly."), HumanMessage(message)]
    assert compose_query(thread, context_turns=2, max_query_chars=1200).reason == NO_WORDS


def test_a_thread_in_which_no_person_spoke_makes_no_query():
    for thread in ([], [AIMessage("Hello.")], [SystemMessage("Be brief.")]):
        query = compose_query(thread, context_turns=2, max_query_chars=1200)
        assert query.text == ""
        assert "no message from a person" in query.reason


def test_a_thread_may_come_in_any_form_that_langchain_takes():
    for last in (
        HumanMessage("Which database?"),
        ("human", "Which database?"),
        {"role": "user", "content": "Which database?"},
        "Which database?",
    ):
        assert composed(["unheard", ("ai", "Hm."), last], turns=0) == "Which database?"
    assert composed(HumanMessage("Which database?")) == "Which database?"
    assert composed("Which database?") == "Which database?"


@pytest.mark.parametrize("short", ["What about the second one?", "and which one is it on?", "Why?"])
def test_a_short_message_takes_along_what_the_talk_was_about(short):
    thread = [
        HumanMessage("Which queues does the billing service use?"),
        AIMessage("RabbitMQ for invoices, Kafka for events."),
        HumanMessage(short),
    ]
    assert composed(thread) == (
        "Which queues does the billing service use?\n"
        f"RabbitMQ for invoices, Kafka for events.\n{short}"
    )
    assert composed(thread, turns=0) == short


def test_a_message_that_says_it_all_goes_alone():
    question = (
        "Which broker did the payments team pick to send our monthly invoices to large customers?"
    )
    assert composed([HumanMessage("Hi."), AIMessage("Hello!"), HumanMessage(question)]) == question


def test_only_as_many_turns_as_are_asked_for_come_along():
    thread = [
        part
        for at in range(5)
        for part in (HumanMessage(f"question{at}"), AIMessage(f"answer{at}"))
    ]
    assert composed([*thread, HumanMessage("Why?")], turns=1) == "question4\nanswer4\nWhy?"
    assert "question2" not in composed([*thread, HumanMessage("Why?")], turns=2)


def test_tool_traffic_reasoning_summaries_and_recalled_blocks_stay_out():
    call = {"name": "grep", "args": {"q": "noise"}, "id": "1"}
    thread = [
        SystemMessage("noise"),
        HumanMessage("noise", additional_kwargs={"lc_source": "summarization"}),
        HumanMessage(f"{BLOCK}\n\nWhere are zebras kept?"),
        AIMessage("Let me look: noise", tool_calls=[call]),
        ToolMessage("noise " * 50, tool_call_id="1"),
        AIMessage(
            [{"type": "thinking", "thinking": "noise"}, {"type": "text", "text": "At home."}]
        ),
        HumanMessage(BLOCK, additional_kwargs={INJECTED_KEY: True}),
        HumanMessage([{"type": "text", "text": BLOCK}, {"type": "text", "text": "Since when?"}]),
    ]
    assert composed(thread) == "Where are zebras kept?\nAt home.\nSince when?"


QUESTION = "Which service logs this error about the payment gateway?"
LOG = "\n".join(
    f"2024-03-05 12:00:{at % 60:02d} INFO worker-{at} handled request {at * 7919}"
    for at in range(400)
)
CODE = "```python\n" + "\n".join(f"value_{at} = compute({at})" for at in range(300)) + "\n```"
TRACE = "Traceback (most recent call last):\n" + '  File "a.py", line 3, in run\n    call()\n' * 50
PASTES = {
    "log": LOG,
    "code": CODE,
    "trace": TRACE + "sqlalchemy.exc.OperationalError: (psycopg) the server closed the connection",
    "java": 'Exception in thread "main" java.lang.IllegalStateException: Failed to load\n'
    + "\n".join(f"\tat org.acme.App.run{at}(App.java:{at})" for at in range(30)),
    "json": json.dumps([{"id": at, "state": "open", "to": {"city": "Oslo"}} for at in range(20)]),
    "json, indented": json.dumps([{"id": at, "state": "open"} for at in range(20)], indent=2),
    "bare code": "\n".join(
        f"export function f{at}(asked) {{\n  if (!asked) return null;\n  return g{at}(asked);\n}}"
        for at in range(20)
    ),
    "sql": "SELECT o.id, c.name\nFROM orders o\nJOIN customers c ON c.id = o.customer_id\n"
    "WHERE o.state = 'open'\nORDER BY o.id DESC\nLIMIT 100;",
    "csv": "id,date,region\n" + "\n".join(f"{at},2026-01-02,north" for at in range(30)),
    "diff": "diff --git a/a.ts b/a.ts\nindex 83db48f..bf269f4 100644\n--- a/a.ts\n+++ b/a.ts\n"
    "@@ -1,2 +1,2 @@\n-  this.store = new MemoryStore();\n+  this.store = new FileStore(options);",
    "quote": "> You said that before.\n> And you said this, too.",
}
PROSE = "We talked at length about many unrelated things and went on. " * 200


@pytest.mark.parametrize(
    "paste", [LOG, CODE, TRACE, PROSE, "字" * 5000, "x" * 9000], ids=lambda p: p[:9]
)
@pytest.mark.parametrize("chars", [200, 1200])
def test_a_question_at_either_end_of_a_long_paste_survives(paste, chars):
    assert QUESTION in composed(f"{paste}\n{QUESTION}", chars=chars)
    assert QUESTION in composed(f"{QUESTION}\n{paste}", chars=chars)


@pytest.mark.parametrize("paste", PASTES.values(), ids=PASTES)
def test_a_paste_gives_way_to_the_words_around_it(paste):
    query = composed(f"First I saw this.\n{paste}\n{QUESTION}\n{paste}\nAny idea?")
    assert query.split("\n") == ["First I saw this.", QUESTION, "Any idea?"]
    assert composed(f"{QUESTION}\n\n{paste}") == composed(f"{paste}\n\n{QUESTION}") == QUESTION


@pytest.mark.parametrize("paste", PASTES.values(), ids=PASTES)
@pytest.mark.parametrize("asked", ["Что мы решили о доставке?", "私たちは何を決めましたか？"])  # noqa: RUF001
def test_a_paste_gives_way_to_words_of_any_script(paste, asked):
    assert composed(f"{paste}\n{asked}") == asked


@pytest.mark.parametrize(
    "written",
    [
        "What is 2 + 2 = ?",
        "Set `foo_bar()` in config.yaml, please.",
        "It says KeyError: 'billing_region'",
        "- milk\n- eggs\n- bread",
        "1. first thing\n2. second thing",
        "Does it run on 10.0.0.1:8080?",
        "https://example.com/a/b?c=d",
        "Call me at 12:30 on 2026-03-04.",
        "Wir nehmen die zweite (blaue) Farbe; die andere nicht.",
    ],
)
def test_what_a_person_writes_is_not_taken_for_a_paste(written):
    assert composed(f"Hello there my friend.\n{written}") == f"Hello there my friend.\n{written}"


def test_a_question_without_words_of_its_own_takes_along_what_went_wrong():
    query = composed(f"{PASTES['trace']}\n\nWhat does this mean?")
    assert (
        query
        == "exc OperationalError psycopg the server closed the connection\nWhat does this mean?"
    )


def test_of_a_long_message_the_questions_count_and_else_its_first_and_last_sentence():
    talk = "We walked along the river for a while. " * 20
    assert composed(f"{talk}\n{QUESTION}\n{talk}") == QUESTION
    assert composed(f"Alpha came first. {talk} Omega was last.") == (
        "Alpha came first.\nOmega was last."
    )
    assert composed(f"Alpha came first. {talk} Why is it?") == (
        "Alpha came first.\nWe walked along the river for a while.\nWhy is it?"
    )
    assert composed(f"Alpha came first. {talk} Why so?") == "Alpha came first.\nWhy so?"


NEED = (
    "I have to find out which database we decided on for the billing service last spring, because"
    " the migration of the invoices table is due next week and the auditors want to know whether"
    " the retention rules that we wrote down for it still apply to archived rows."
)


@pytest.mark.parametrize(
    "courtesy",
    ["Can you help me please?", "Does that make sense?", "Could somebody take a quick look?",
     "What do you think?", "Any idea?", "Would you mind checking that for me?",
     "Thanks in advance, could you get back to me today?", "Sorry, do you know what is wrong?"],
)  # fmt: skip
def test_a_courtesy_does_not_stand_for_the_request_before_it(courtesy):
    assert composed(f"{NEED} {courtesy}") == f"{NEED} {courtesy}"


def test_a_question_that_points_at_what_stands_before_it_takes_it_along():
    talk = "We walked along the river for a while. " * 20
    drops, who = "The payment gateway drops events.", "Who wrote the module for it back then?"
    assert composed(f"{talk}\n{drops} {who}\n{talk}") == f"{drops}\n{who}"
    assert composed(f"Alpha came first. {talk} {drops} Why is that?") == (
        f"Alpha came first.\n{drops}\nWhy is that?"
    )


def test_of_many_questions_the_first_and_the_last_two_are_kept():
    asked = [f"{at}. Which port does service number {at} use?" for at in "abcde"]
    query = composed(" ".join([*asked, NEED]))
    assert [at for at in "abcde" if f"number {at}" in query] == ["a", "d", "e"]


def test_a_message_that_is_code_alone_is_searched_for_as_it_is():
    code = "```\nalpha = 1\nbeta = 2\ngamma = 3\ndelta = 4\nepsilon = 5\n```"
    assert all(name in composed(code) for name in ("alpha", "beta", "gamma", "delta", "epsilon"))


def test_text_of_another_script_is_not_taken_for_a_log():
    lines = ["Какую базу мы выбрали?", "我们选择了哪个数据库", "どのデータベース"] * 3
    question = "Which of all these did we choose?"
    assert composed("\n".join([*lines, question])) == "\n".join([*lines, question])


def test_a_message_that_points_at_something_takes_more_along():
    said = [HumanMessage("alpha " * 30), AIMessage("omega " * 30)]
    plain = composed([*said, HumanMessage("Name every message broker used in production.")])
    pointing = composed([*said, HumanMessage("Which of those would we use for it?")])
    assert pointing.count("alpha") > plain.count("alpha")


def test_a_long_text_is_cut_between_words():
    words = [f"word{at:04d}" for at in range(1000)]
    for chars in range(100, 110):
        assert set(composed(" ".join(words), chars=chars).split()) <= {*words, "…"}


def test_a_message_of_many_tokens_and_few_words_keeps_to_the_cap_with_what_was_said():
    said = [HumanMessage("ꙮ" * 200), AIMessage("ꙮ" * 200)]
    query = composed([*said, HumanMessage("Why? " + "🫠" * 120)])
    assert query.startswith("ꙮ")
    assert "Why?" in query
    assert count_tokens(query) <= MAX_QUERY_TOKENS


def test_few_words_amid_much_else_are_found():
    assert composed("!" * 50_000 + " zebra " + "?" * 50_000).startswith("zebra")
    assert composed("!" * 90 + " zebra", chars=3) == "zeb"


def test_a_long_message_leaves_no_room_that_it_needs_to_what_was_said_before():
    said = [HumanMessage("earlier " * 400), AIMessage("answered " * 400)]
    text = composed([*said, HumanMessage("And then?")], chars=120)
    assert text.endswith("And then?")
    assert len(text) <= 120
    assert composed([*said, HumanMessage("And then?")], chars=9) == "And then?"


def test_the_work_does_not_grow_with_the_thread():
    class Watched(list):
        looked_at = 0

        def __reversed__(self):
            for message in super().__reversed__():
                self.looked_at += 1
                yield message

    thread = Watched([("human", "What?"), ("ai", "That.")] * 5000)
    assert composed(thread, turns=2)
    assert thread.looked_at < 10


def test_the_turn_began_with_the_last_message_that_a_person_wrote():
    person = HumanMessage("Which database?", id="p")
    after = [
        AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "1"}]),
        ToolMessage("found", tool_call_id="1"),
        HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "found"}]),
        HumanMessage("A summary.", additional_kwargs={"lc_source": "summarization"}),
        HumanMessage(BLOCK, additional_kwargs={INJECTED_KEY: True}),
        AIMessage("Postgres."),
    ]
    assert turn_message([HumanMessage("Hi."), person, *after]) is person
    assert turn_message(after) is None
    assert turn_message([]) is None
    assert turn_message([("user", "Hi.")]).content == "Hi."


def test_a_persons_image_or_words_beside_a_block_are_theirs():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    marked = {INJECTED_KEY: True}
    for content in (f"{BLOCK}\n\nHi.", [{"type": "text", "text": BLOCK}, image]):
        message = HumanMessage(content, additional_kwargs=marked)
        assert turn_message([HumanMessage("Before."), message]) is message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("plain", "plain"),
        (["one", {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image_url", "image_url": "x"}, {"type": "reasoning", "text": "hm"}], ""),
        ([{"type": "text", "text": None}, {"type": "text"}, {"text": "untyped"}], ""),
        ([{"type": "text", "text": BLOCK}, {"type": "text", "text": "mine"}], "mine"),
        ([{"type": "text", "text": BLOCK[:200]}, {"type": "text", "text": "mine"}], "mine"),
        (f"{BLOCK}\n\nmine", "mine"),
        ("what is <hindsight-memory>?", "what is <hindsight-memory>?"),
        ([], ""),
    ],
)
def test_a_message_says_what_its_text_parts_say(content, said):
    assert message_text(HumanMessage(content)) == said
    assert message_text(AIMessage(content)) == said


@given(threads)
def test_any_message_can_be_read(thread):
    for message in thread:
        assert isinstance(message_text(message), str)


@pytest.mark.parametrize(
    "unit", ["?", "? ", "?!🙂", "a\n", "```\n", "x: ", "<", "ꙮ", "\u200b", "</"]
)
def test_a_query_takes_no_longer_than_its_text(unit):
    started = time.perf_counter()
    compose_query(f"a {unit * (60_000 // len(unit))} b", context_turns=2, max_query_chars=3000)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("end", ["", ".", " \n", "!?" * 20])
@pytest.mark.parametrize("unit", ["we went on with the work ", "a", "9 ", "é.", "_", "a b."])
def test_a_long_line_between_lines_of_a_paste_takes_no_longer_than_its_text(unit, end):
    line = unit * (40_000 // len(unit)) + end
    started = time.perf_counter()
    compose_query(f"foo();\n{line}\nbar();\nWhy?", context_turns=2, max_query_chars=3000)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("between", "is_sentence"),
    [
        ("And then it says this.", True),
        ("Does it work at all?)", True),
        ("这样可以。", True),
        ("and then it went on", False),
        ("12 34.", False),
        ("a.", False),
        ("...", False),
        ("it said. then went", False),
    ],
)
def test_a_sentence_between_lines_of_a_paste_is_the_persons(between, is_sentence):
    written = take_apart(f"foo();\n{between}\nbar();").written
    assert (between in written) == is_sentence
