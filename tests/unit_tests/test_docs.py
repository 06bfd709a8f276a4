"""What README and docs show: code that compiles, names that exist, and every setting."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from settings_table import NOT_USED_YET, every_setting, on_page_markdown

import langchain_hindsight
from langchain_hindsight import DualBankMemory, HindsightSettings, RecallResult, RetainReceipt

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_hindsight"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = list(every_setting())
HELD = {"memory": DualBankMemory, "receipt": RetainReceipt, "result": RecallResult}


def blocks(language):
    """The code blocks of a language on all pages, each named by its page and place."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [
        pytest.param(code, id=f"{page.name}-{place}")
        for page in PAGES
        for place, code in enumerate(fence.findall(page.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_a_code_block_compiles_and_imports_what_exists(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
            public = importlib.import_module(node.module).__all__
            assert {name.name for name in node.names} <= set(public)


@pytest.mark.parametrize("code", blocks("python"))
def test_a_code_block_asks_of_our_objects_what_they_have(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            kind = HELD.get(node.value.id)
            assert kind is None or hasattr(kind, node.attr)


@pytest.mark.parametrize("code", blocks("toml"))
def test_a_configuration_shown_is_one(code):
    assert HindsightSettings(**tomllib.loads(code))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_setting_or_variable_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    sections = "|".join(name for name in HindsightSettings.model_fields)
    names = {one.name for one in SETTINGS}
    for name in re.findall(rf"`((?:{sections})\.[a-z_.]+)(?: = [^`]*)?`", text):
        assert name in names, name
    for variable in re.findall(r"\bHINDSIGHT_[A-Z]+__[A-Z_]+\b", text):
        assert variable in {one.variable for one in SETTINGS}, variable


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: [\w.]+\.(\w+)$", page, re.MULTILINE)
    assert set(langchain_hindsight.__all__) - set(shown) == {"__version__"}


def test_the_configuration_page_has_every_setting():
    page = on_page_markdown((ROOT / "docs/configuration.md").read_text(encoding="utf-8"))
    for one in SETTINGS:
        assert page.count(f"| `{one.name}`<") == 1
    row = r"`recall\.max_tokens`.*`HINDSIGHT_RECALL__MAX_TOKENS`.*\| whole number, tokens<.*: `800`"
    assert re.search(row, page)
    assert re.search(r"`banks\.life\.bank_id`.*\| text, template or function<.*: none<", page)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_says_what_it_is_and_a_number_in_what_unit(setting):
    assert setting.description.endswith(".")
    assert bool(setting.unit) == (setting.kind in {"number", "whole number"})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_marked_as_not_used_exactly_while_no_code_uses_it(setting):
    if len(get_args(setting.field.annotation)) == 1:
        return  # one value and no other: there is nothing to act on
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    asked = set(re.findall(r"\.(\w+)", code))
    used = set(setting.name.split(".")) <= asked
    assert used == (setting.name not in NOT_USED_YET)


def test_what_the_pages_name_as_methods_are_methods():
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"`memory\.(\w+)\(", page.read_text(encoding="utf-8")))
    assert named
    assert all(inspect.isfunction(getattr(DualBankMemory, name, None)) for name in named)
