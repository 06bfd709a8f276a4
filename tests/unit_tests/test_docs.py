"""What README and docs show: code that compiles, names that exist, and every setting."""

import ast
import re
from pathlib import Path

import pytest

import langchain_hindsight
from langchain_hindsight import HindsightSettings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_a_code_block_compiles_and_imports_what_exists(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module == "langchain_hindsight":
            for name in node.names:
                assert name.name in langchain_hindsight.__all__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_table_of_settings_names_every_setting():
    from settings_table import table

    rows = table()
    for section, field in HindsightSettings.model_fields.items():
        assert f"`{section}" in rows, field
    assert "`recall.max_tokens` | `800` | `HINDSIGHT_RECALL__MAX_TOKENS`" in rows
    assert re.search(r"`mental_models\.inject`.*not used yet", rows)
