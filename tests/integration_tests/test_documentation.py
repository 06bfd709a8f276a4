"""The code of README and docs runs as it stands there, page by page, on the real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from remembering import model_of

import langchain_hindsight.embedded.server
from langchain_hindsight import DualBankMemory

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if CODE.search(page.read_text(encoding="utf-8"))
]


@pytest.fixture
def surroundings(hindsight_mock_url, servers_folder, tmp_path, monkeypatch):
    """What a page takes as given: a server, a folder, a model, a memory and a conversation."""
    monkeypatch.setenv("HINDSIGHT_API_URL", hindsight_mock_url)
    monkeypatch.setattr(
        langchain_hindsight.embedded.server, "default_data_dir", lambda: servers_folder / "mock"
    )
    monkeypatch.chdir(tmp_path)
    given = {
        "config": {"configurable": {"thread_id": "t-1", "user_id": "u-1"}},
        "memory": DualBankMemory(project_bank="docs-coding", life_bank="life-{user_id}"),
        "messages": [("human", "We deploy on Fridays."), ("ai", "Noted.")],
        "model": model_of("We deploy on Fridays."),
    }
    yield given
    for value in given.values():
        if isinstance(value, DualBankMemory):
            value.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, surroundings, hindsight_mock_url):
    surroundings["memory"].retain("We deploy on Fridays.", config=surroundings["config"])
    for code in CODE.findall(page.read_text(encoding="utf-8")):
        here = code.replace("http://localhost:8888", hindsight_mock_url)
        here = here.replace('"openai:gpt-5"', "model")
        replaced = surroundings["memory"]
        exec(compile(here, page.name, "exec"), surroundings)
        if surroundings["memory"] is not replaced:
            replaced.close()
