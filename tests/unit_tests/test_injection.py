import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_hindsight import fence
from langchain_hindsight.injection import (
    inject_into_human,
    inject_into_messages,
    inject_into_system,
    lead_with_system,
)
from langchain_hindsight.recall_result import RecalledMemory

BLOCK = fence.render([RecalledMemory(id="m1", text="Deploys happen on Fridays.")], [])
OLDER = fence.render([RecalledMemory(id="m2", text="Deploys happen on Mondays.")], [])

CONVERSATION = [
    SystemMessage("Be brief.", id="s1"),
    HumanMessage("Hello", id="h1"),
    AIMessage("Hi", id="a1"),
    HumanMessage("When do we deploy?", id="h2"),
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def test_a_string_stays_a_string_with_the_block_ahead_of_the_persons_words():
    sent = inject_into_messages(CONVERSATION, BLOCK, injection="human")
    assert sent[-1].content == f"{BLOCK}\n\nWhen do we deploy?"


def test_a_content_list_gets_a_text_block_first_and_keeps_the_others():
    human = HumanMessage([{"type": "text", "text": "What is this?"}, IMAGE], id="h1")
    (sent,) = inject_into_messages([human], BLOCK, injection="human")
    assert sent.content == [
        {"type": "text", "text": BLOCK},
        {"type": "text", "text": "What is this?"},
        IMAGE,
    ]


def test_the_message_keeps_its_id_and_is_marked():
    sent = inject_into_messages(CONVERSATION, BLOCK, injection="human")
    assert sent[-1].id == "h2"
    assert sent[-1].additional_kwargs[fence.INJECTED_KEY] is True


@pytest.mark.parametrize("injection", ["human", "system"])
def test_the_callers_messages_are_left_as_they_are(injection):
    given = [one.model_copy(deep=True) for one in CONVERSATION]
    listed = HumanMessage([{"type": "text", "text": "Now?"}], id="h3")
    inject_into_messages([*given, listed], BLOCK, injection=injection)
    assert given == CONVERSATION
    assert listed.content == [{"type": "text", "text": "Now?"}]
    assert fence.INJECTED_KEY not in listed.additional_kwargs


def test_everything_ahead_of_the_turns_message_is_sent_unchanged_so_a_prompt_cache_stays_valid():
    sent = inject_into_messages(CONVERSATION, BLOCK, injection="human")
    assert sent[:-1] == CONVERSATION[:-1]


def test_in_a_tool_loop_the_block_stays_with_the_persons_message_and_the_tools_follow():
    loop = [
        *CONVERSATION,
        AIMessage("", tool_calls=[{"name": "clock", "args": {}, "id": "c1"}], id="a2"),
        ToolMessage("Noon", tool_call_id="c1", id="t1"),
    ]
    sent = inject_into_messages(loop, BLOCK, injection="human")
    assert BLOCK in sent[3].content
    assert sent[4:] == loop[4:]


def test_no_block_injects_nothing():
    assert inject_into_messages(CONVERSATION, "", injection="human") == CONVERSATION
    assert inject_into_messages(CONVERSATION, "", injection="system") == CONVERSATION


def test_without_a_message_of_the_person_nothing_is_injected_in_human_mode():
    assert inject_into_human([AIMessage("Hi")], BLOCK) == [AIMessage("Hi")]


def test_injecting_the_same_block_twice_shows_it_once():
    once = inject_into_messages(CONVERSATION, BLOCK, injection="human")
    assert inject_into_messages(once, BLOCK, injection="human") == once
    listed = inject_into_human([HumanMessage([IMAGE], id="h1")], BLOCK)
    assert inject_into_human(listed, BLOCK) == listed


@pytest.mark.parametrize("content", ["Hello", [{"type": "text", "text": "Hello"}]])
def test_a_block_left_behind_by_an_earlier_turn_is_taken_out(content):
    left_behind = inject_into_human([HumanMessage(content, id="h1")], OLDER)
    sent = inject_into_human([*left_behind, AIMessage("Hi"), HumanMessage("When?")], BLOCK)
    assert sent[0].content == content
    assert fence.INJECTED_KEY not in sent[0].additional_kwargs


def test_words_that_quote_a_block_without_our_mark_stay():
    quoted = HumanMessage(f"What is this: {OLDER}", id="h1")
    sent = inject_into_human([quoted, AIMessage("A block."), HumanMessage("When?")], BLOCK)
    assert sent[0] == quoted


def test_system_messages_in_mid_conversation_become_one_at_the_head():
    scattered = [
        HumanMessage("Hello", id="h1"),
        SystemMessage("Be brief.", id="s1"),
        AIMessage("Hi", id="a1"),
        SystemMessage("Be kind.", id="s2"),
        HumanMessage("When do we deploy?", id="h2"),
    ]
    sent = inject_into_messages(scattered, BLOCK, injection="human")
    assert [one.type for one in sent] == ["system", "human", "ai", "human"]
    assert sent[0].content == "Be brief.\n\nBe kind."


def test_merging_keeps_the_cache_control_of_a_prompt_made_of_blocks():
    cached = {"type": "text", "text": "Long prompt", "cache_control": {"type": "ephemeral"}}
    sent = lead_with_system([SystemMessage([cached]), HumanMessage("Hi"), SystemMessage("Brief.")])
    assert sent[0].content == [cached, {"type": "text", "text": "Brief."}]


def test_in_system_mode_the_block_follows_the_prompt_as_a_content_block_of_its_own():
    sent = inject_into_messages(CONVERSATION, BLOCK, injection="system")
    assert sent[0].content == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": BLOCK},
    ]
    assert sent[0].id == "s1"
    assert sent[1:] == CONVERSATION[1:]


def test_in_system_mode_a_conversation_without_a_prompt_gets_one_of_the_block():
    sent = inject_into_messages([HumanMessage("When?")], BLOCK, injection="system")
    assert [one.type for one in sent] == ["system", "human"]
    assert sent[0].content == BLOCK


def test_appending_to_the_prompt_keeps_the_cache_control_of_the_blocks_before():
    cached = {"type": "text", "text": "Long prompt", "cache_control": {"type": "ephemeral"}}
    system = SystemMessage([cached])
    sent = inject_into_system(system, BLOCK)
    assert sent.content == [cached, {"type": "text", "text": BLOCK}]
    assert system.content == [cached]
    assert sent.additional_kwargs[fence.INJECTED_KEY] is True


@pytest.mark.parametrize("inject", [inject_into_human, inject_into_system])
@pytest.mark.parametrize("as_list", [False, True])
def test_another_block_takes_the_place_of_the_one_that_is_there(inject, as_list):
    words = [{"type": "text", "text": "Be brief."}] if as_list else "Be brief."
    if inject is inject_into_human:
        once = inject_into_human([HumanMessage(words)], OLDER)
        (sent,) = inject_into_human(once, BLOCK)
    else:
        sent = inject_into_system(inject_into_system(SystemMessage(words), OLDER), BLOCK)
    shown = str(sent.content)
    assert "Be brief." in shown
    assert "Fridays" in shown
    assert "Mondays" not in shown


def test_where_nothing_is_recalled_any_more_the_block_that_is_there_is_taken_out():
    once = inject_into_human([HumanMessage("When do we deploy?")], OLDER)
    assert inject_into_human(once, "")[0].content == "When do we deploy?"


def test_words_in_one_part_with_an_older_block_stay():
    marked = {fence.INJECTED_KEY: True}
    part = {"type": "text", "text": f"{OLDER}\n\nMy earlier question"}
    messages = [HumanMessage([part, IMAGE], additional_kwargs=marked), *CONVERSATION[2:]]
    sent = inject_into_messages(messages, BLOCK, injection="human")
    assert sent[0].content == [{"type": "text", "text": "My earlier question"}, IMAGE]
