"""Configurations in older words, in use: none of them writes to the Life Bank by itself."""

from __future__ import annotations

import asyncio
import json

import pytest
from banks_there import bank_config
from langchain_core.messages import AIMessage, HumanMessage
from remembering import LIFE_NOTE, model_of, stored, tool_call
from surfaces import agent, both, workflow

from langchain_hindsight import DualBankMemory, HindsightMemory, create_hindsight_tools

SAID = "I always like tea; remember it in my Life Bank, in every project."
ANSWER = "Noted: you always like tea."

OLDER = [
    {
        "profile": profile,
        f"{bank}Retain": {"mode": mode, "enabled": True},
        "router": {"enabled": True},
        "banks": {bank: {"enabled": True, "bankId": "life"}, "coding": {"bankId": "project"}},
        "scope": {"projectId": "billing"},
    }
    for profile, bank in [("project+user", "user"), ("project+global", "global")]
    for mode in ("router", "both")
] + [
    {
        "profile": "user-only",
        "userRetain": "router",
        "banks": {"user": {"enabled": True, "bankId": "life"}, "coding": {"bankId": "project"}},
    }
]


@pytest.mark.parametrize("older", OLDER, ids=lambda _: "")
@both
def test_no_automatic_path_of_an_older_configuration_writes_to_the_life_bank(
    hindsight_url, bank_id, life_bank_id, tmp_path, monkeypatch, older, use_async
):
    text = json.dumps(older).replace('"life"', f'"{life_bank_id}"')
    file = tmp_path / "older.json"
    file.write_text(text.replace('"project"', f'"{bank_id}"'))
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", str(file))
    with DualBankMemory(hindsight_url) as memory:
        asyncio.run(_every_automatic_path(memory, use_async=use_async))
        assert not memory.flush(120).timed_out
        kept = stored(hindsight_url, bank_id)
        assert bool(kept) is memory.settings.switches.automatic_retain
        assert stored(hindsight_url, life_bank_id) == []
        assert bank_config(hindsight_url, life_bank_id) is None
        memory.retain_life(LIFE_NOTE)
        assert not memory.flush(120).timed_out
    assert stored(hindsight_url, life_bank_id) == [LIFE_NOTE]


async def _every_automatic_path(memory, *, use_async):
    classic = HindsightMemory(memory=memory)
    state = {"messages": [HumanMessage(SAID)]}
    thread = [HumanMessage(SAID), AIMessage(ANSWER)]
    tools = [one for one in create_hindsight_tools(memory) if one.name == "hindsight_recall"]
    graphs = [
        build(
            memory,
            model_of(tool_call("hindsight_recall", query=SAID), ANSWER),
            use_async=use_async,
            tools=tools,
        )
        for build in (workflow, agent)
    ]
    if use_async:
        await memory.aretain(thread, "t-1")
        await classic.asave_context({"input": SAID}, {"output": ANSWER})
        for graph in graphs:
            await graph.ainvoke(state)
        return

    def run():
        memory.retain(thread, "t-1")
        classic.save_context({"input": SAID}, {"output": ANSWER})
        for graph in graphs:
            graph.invoke(state)

    await asyncio.to_thread(run)
