from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_hindsight import fence
from langchain_hindsight.recall_result import RecalledMemory
from langchain_hindsight.transcript import Transcript, content


def kept(messages, *, roles=("human", "ai"), tools=(), mask=False, max_chars=100_000):
    transcript = Transcript(messages, roles=roles, tools=tools)
    lines = [transcript.line(index) for index in transcript.settled(0)]
    return [content(line, mask=mask, max_chars=max_chars)[0] for line in lines]


def calling(name, args, text="", **extra):
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": "c1"}], **extra)


def block(*texts):
    return fence.render(
        [
            RecalledMemory(
                id=str(at), text=text, type=None, tags=(), date=None, scores={}, document_id=None
            )
            for at, text in enumerate(texts)
        ],
        [],
    )


def test_what_people_and_the_assistant_said_is_kept_in_order():
    messages = [SystemMessage("be kind"), HumanMessage("hi"), AIMessage("hello")]
    assert kept(messages) == ["user: hi", "assistant: hello"]


def test_speakers_with_names_stay_apart():
    messages = [HumanMessage("hi", name="Ada"), HumanMessage("yo", name="assistant")]
    assert kept(messages) == ["Ada (user): hi", "assistant (user): yo"]


def test_a_call_is_kept_by_name_and_arguments_once_the_turn_has_an_answer():
    messages = [HumanMessage("find x"), calling("search", {"q": "x"})]
    assert kept(messages) == ["user: find x"]
    messages += [ToolMessage("pages", tool_call_id="c1", name="search"), AIMessage("found")]
    assert kept(messages) == [
        "user: find x",
        'assistant: [called search({"q": "x"})]',
        "assistant: found",
    ]


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("cut", ["\n", " "])
def test_a_block_spread_over_the_arguments_of_a_call_is_not_kept(cut, mask):
    pieces = block("A remembered zebra.", "Another zebra.").split(cut)
    said = kept([HumanMessage("note it"), calling("write", {"lines": pieces}, "Done.")], mask=mask)
    assert "zebra" not in "".join(said)
    assert "called write" in said[1]


def test_a_call_of_a_turn_that_ended_without_an_answer_is_not_kept_and_its_error_is():
    messages = [
        HumanMessage("find x"),
        calling("search", {"q": "x"}),
        ToolMessage("no network", tool_call_id="c1", name="search", status="error"),
        HumanMessage("never mind"),
    ]
    assert kept(messages) == [
        "user: find x",
        "search (tool): Error: no network",
        "user: never mind",
    ]


def test_a_long_tool_error_is_shortened():
    messages = [
        HumanMessage("go"),
        ToolMessage("x" * 9000, tool_call_id="c1", name="run", status="error"),
        AIMessage("it failed"),
    ]
    assert len(kept(messages)[1]) < 600


def test_a_tool_result_is_kept_only_where_its_tool_or_role_was_asked_for():
    messages = [
        HumanMessage("go"),
        calling("run", {}),
        ToolMessage("ran well", tool_call_id="c1"),
        AIMessage("done"),
    ]
    assert not any("ran well" in line for line in kept(messages))
    assert "run (tool): ran well" not in kept(messages, tools=("other",))
    assert any("ran well" in line for line in kept(messages, tools=("run",)))
    assert any("ran well" in line for line in kept(messages, roles=("human", "ai", "tool")))


def test_what_hindsights_own_tools_took_or_returned_is_never_kept():
    messages = [
        HumanMessage("remember me"),
        calling("hindsight_retain_life", {"content": "likes tea"}),
        ToolMessage("Stored: likes tea", tool_call_id="c1", name="hindsight_retain_life"),
        ToolMessage("gone wrong", tool_call_id="c1", status="error"),
        AIMessage("I will."),
    ]
    lines = kept(messages, roles=("human", "ai", "tool"))
    assert lines == ["user: remember me", "assistant: I will."]


def test_reasoning_and_unknown_blocks_are_left_out_and_media_become_markers():
    messages = [
        HumanMessage(
            [
                "look",
                {"type": "image_url", "image_url": {"url": "data:..."}},
                {"type": "file", "base64": "AAAA"},
                {"type": "text", "text": "at this"},
            ]
        ),
        AIMessage(
            [
                {"type": "thinking", "thinking": "hmm"},
                {"type": "reasoning", "summary": [{"text": "hmm"}]},
                {"type": "holograph", "text": "hmm"},
                {"type": "text", "text": "I see"},
                {"type": "tool_use", "name": "t", "input": {}, "id": "1"},
            ]
        ),
    ]
    assert kept(messages) == ["user: look\n[image]\n[file]\nat this", "assistant: I see"]


def test_reasoning_that_a_server_leaves_in_the_text_is_left_out():
    assert kept([HumanMessage("hi"), AIMessage("<think>hm\nhm</think>\nHello")])[1] == (
        "assistant: Hello"
    )
    assert kept([HumanMessage("hi"), AIMessage("<think>hm")]) == ["user: hi"]


def test_a_human_message_of_tool_results_alone_is_no_turn():
    result = HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "42"}])
    messages = [HumanMessage("go"), calling("run", {}), result, AIMessage("done")]
    assert kept(messages) == ["user: go", "assistant: [called run({})]", "assistant: done"]


def test_what_a_middleware_wrote_in_a_persons_name_is_not_kept():
    made = HumanMessage("Here is a summary", additional_kwargs={"lc_source": "summarization"})
    assert kept([made, HumanMessage("go on")]) == ["user: go on"]


def test_a_message_that_is_only_an_injected_block_is_not_kept_and_its_neighbours_words_are():
    injected = HumanMessage(block("a secret plan"), additional_kwargs={fence.INJECTED_KEY: True})
    beside = HumanMessage(block("a secret plan") + "\n\nmy own words")
    assert kept([injected, beside]) == ["user: my own words"]


def test_a_block_in_a_call_or_an_answer_is_not_kept():
    messages = [
        HumanMessage("what do you know?"),
        calling("note", {"text": [block("a secret plan")]}),
        AIMessage("I know:\n" + block("a secret plan") + "\nThat is all."),
    ]
    assert "secret" not in " ".join(kept(messages))
    assert "That is all." in kept(messages)[-1]


words = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=30
)


@given(own=words, recalled=words, role=st.sampled_from(["human", "ai", "tool", "parts", "call"]))
def test_no_recalled_text_is_kept_wherever_it_stands(own, recalled, role):
    marked = f"RECALLED{recalled}RECALLED"
    text = f"{own}\n{block(marked)}\n{own}"
    messages = {
        "human": [HumanMessage(text)],
        "ai": [HumanMessage("q"), AIMessage(text)],
        "tool": [HumanMessage("q"), ToolMessage(text, tool_call_id="1", name="t"), AIMessage("a")],
        "parts": [HumanMessage([{"type": "text", "text": own}, {"type": "text", "text": text}])],
        "call": [HumanMessage("q"), calling("t", {"deep": [{"x": text}]}), AIMessage("a")],
    }[role]
    assert "RECALLED" not in " ".join(kept(messages, roles=("human", "ai", "tool")))


def test_a_person_who_mentions_the_tag_keeps_their_words():
    said = f"what does <{fence.FENCE_TAG}> mean?"
    assert kept([HumanMessage(said)]) == [f"user: {said}"]


def test_a_cut_off_stream_is_marked_and_a_complete_one_is_not():
    cut = AIMessageChunk("The answer is")
    assert "cut off" in kept([HumanMessage("q"), cut])[1]
    whole = AIMessageChunk("The answer is 4", chunk_position="last")
    assert kept([HumanMessage("q"), whole])[1] == "assistant: The answer is 4"


def test_a_text_over_the_cap_is_cut_and_says_so():
    (line,) = kept([HumanMessage("x" * 500)], max_chars=100)
    assert line == f"user: {'x' * 100} [cut: 400 more characters]"


def test_credentials_are_masked_in_text_in_arguments_and_in_the_names_of_tools():
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    messages = [
        HumanMessage(f"the key is {secret}"),
        calling(f"login_{secret}", {}),
        calling("login", {"env": [{"name": "DB_PASSWORD", "value": "correct-horse-battery"}]}),
        AIMessage("done"),
    ]
    text = " ".join(kept(messages, mask=True))
    assert secret not in text
    assert "correct-horse-battery" not in text


def test_a_credential_that_the_cap_would_cut_is_masked_first():
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    (line,) = kept([HumanMessage("x " * 45 + secret)], mask=True, max_chars=100)
    assert "sk-proj" not in line


def test_chat_messages_follow_their_role_and_removals_are_nothing():
    messages = [
        ChatMessage("hi", role="user"),
        ChatMessage("rules", role="developer"),
        RemoveMessage("1"),
    ]
    assert kept(messages) == ["user: hi"]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-03-01T10:00:00+00:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        (1772359200, datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00", None),
        ("yesterday", None),
        (float("nan"), None),
        (None, None),
    ],
)
def test_a_message_own_time_counts_only_with_a_zone(stamp, expected):
    message = HumanMessage("hi", additional_kwargs={"timestamp": stamp})
    assert Transcript([message], roles=("human",), tools=()).said_at(0) == expected


def test_text_that_no_database_holds_is_made_fit():
    assert kept([HumanMessage("a\0b\ud800c")]) == ["user: ab?c"]


def test_an_id_that_no_database_can_hold_is_cleaned_and_stays_apart_from_others():
    raw = [HumanMessage("a", id="a\ud800"), HumanMessage("b", id="a\ud801")]
    raw += [HumanMessage("c", id="a?"), HumanMessage("d", id="a\0")]
    read = Transcript(raw, roles=("human",), tools=())
    ids = [read.message_id(at) for at in range(4)]
    assert len(set(ids)) == 4
    assert ids == [read.line(at).message_id for at in range(4)]
    assert all(one.encode() and "\0" not in one for one in ids)


def test_names_of_speakers_and_tools_are_cleaned_too():
    call = {"name": "t\ud800\0", "args": {"x\ud800": "v\ud800"}, "id": "1"}
    messages = [
        HumanMessage("a", name="n\ud800\0"),
        AIMessage("b", tool_calls=[call]),
        ToolMessage("c", tool_call_id="1", status="error"),
    ]
    read = Transcript(messages, roles=("human", "ai"), tools=())
    texts = [content(read.line(at), mask=False, max_chars=999)[0] for at in range(3)]
    assert "".join(texts).encode()
    assert "\0" not in "".join(texts)


def test_a_result_without_a_name_is_that_of_the_nearest_call_of_its_turn():
    def call(name):
        return AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "1"}])

    def result():
        return ToolMessage("r", tool_call_id="1")

    people = HumanMessage("q")
    messages = [people, call("one"), result(), call("two"), result(), people, result()]
    for order in (range(7), reversed(range(7))):
        read = Transcript(messages, roles=("human",), tools=("two",))
        assert [at for at in order if read.line(at) and read.line(at).role == "tool"] == [4]


def test_results_without_names_are_looked_up_in_time_that_grows_with_their_number():
    class Counted(list):
        looked_at = 0

        def __getitem__(self, index):
            Counted.looked_at += 1
            return super().__getitem__(index)

    results = [ToolMessage("r", tool_call_id=str(at), status="error") for at in range(1000)]
    read = Transcript(Counted([HumanMessage("q"), *results]), roles=("human",), tools=())
    assert sum(read.line(at) is not None for at in range(1001)) == 1001
    assert Counted.looked_at < 10_000


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_stands_for_none_is_none(stamp):
    read = Transcript(
        [HumanMessage("a", additional_kwargs={"timestamp": stamp})], roles=("human",), tools=()
    )
    assert read.said_at(0) is None


class _Unspeakable:
    def __str__(self):
        raise RuntimeError("boom")

    __repr__ = __str__


def _circular():
    circle = {"word": "said"}
    circle["itself"] = circle["again"] = circle
    return circle


def _deep():
    outer = inner = {}
    for _ in range(5000):
        inner["in"] = {}
        inner = inner["in"]
    return outer


@pytest.mark.parametrize(
    "arguments",
    [{("a", 1): 2}, {"x": _Unspeakable()}, _circular(), _deep(), {"x": b"1", "y": float("nan")}],
    ids=["pair as key", "raises", "circular", "deep", "bytes"],
)
def test_no_tool_argument_however_odd_keeps_a_conversation_from_being_kept(arguments):
    message = AIMessage("Done.")
    message.tool_calls = [{"name": "search", "args": arguments, "id": "c"}]
    line = Transcript([message], roles=("human", "ai"), tools=()).line(0)
    text, _ = content(line, mask=True, max_chars=10_000)
    assert "search" in text
    assert "Done." in text
