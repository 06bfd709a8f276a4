"""Banks looked after on purpose: from a program, from the command, and by a model's tools."""

from __future__ import annotations

import asyncio

import pytest
from banks_there import bank_config, make_bank
from remembering import open_memory
from surfaces import both
from typer.testing import CliRunner

from langchain_hindsight import (
    BankResolutionError,
    DualBankMemory,
    HindsightError,
    LifeBankDisabledError,
    create_hindsight_tools,
)
from langchain_hindsight.cli import app
from langchain_hindsight.outbox.delivery import Delivery
from langchain_hindsight.templates import TEMPLATES, model_id


@pytest.fixture
def command(monkeypatch, bank_id, life_bank_id):
    """The command over the test's banks; gives its exit code and what it printed."""

    def run(url, *arguments):
        monkeypatch.setenv("HINDSIGHT_API_URL", url)
        monkeypatch.setenv("HINDSIGHT_BANKS__PROJECT__BANK_ID", bank_id)
        monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__BANK_ID", f"{life_bank_id}-{{user_id}}")
        monkeypatch.setenv("HINDSIGHT_SCOPE__PROJECT_ID", "billing")
        done = CliRunner().invoke(app, arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    return run


def _manage(memory, role, work, *, use_async, config=None):
    if use_async:
        return asyncio.run(memory.amanage(role, work, config))
    return memory.manage(role, work, config)


# A configured bank that does not exist


def test_looking_at_a_bank_delivers_nothing_that_waits_for_it(
    hindsight_url, bank_id, command, monkeypatch
):
    names = {"project_bank": bank_id, "project_id": "billing"}
    with monkeypatch.context() as asleep:
        asleep.setattr(Delivery, "wake", lambda *_, **__: None)
        with DualBankMemory(hindsight_url, **names) as memory:
            assert memory.retain([("human", "We deploy on Fridays.")], "t").status == "queued"
    for _ in range(2):
        code, told = command(hindsight_url, "bank", "show", "--bank", "project")
        assert (code, "does not exist yet" in told) == (1, True)
        assert bank_config(hindsight_url, bank_id) is None
    with DualBankMemory(hindsight_url, **names) as memory:
        assert memory.flush(30).delivered == 1


def test_one_bank_is_shown_where_the_other_cannot_be(hindsight_url, bank_id, command):
    make_bank(hindsight_url, bank_id)
    code, told = command(hindsight_url, "bank", "show")  # the Life Bank's template lacks a caller
    assert (code, f"project: {bank_id} exists" in told, "user_id" in told) == (1, True, True)


def test_a_misspelt_bank_is_told_from_one_that_exists(hindsight_url, bank_id, command):
    code, told = command(hindsight_url, "bank", "show", "--bank", "project")
    assert (code, "does not exist yet" in told, "Misspelt" in told) == (1, True, False)
    make_bank(hindsight_url, f"{bank_id}s")
    code, told = command(hindsight_url, "bank", "show", "--bank", "project")
    assert (code, f"Misspelt? There is: {bank_id}s" in told) == (1, True)
    assert bank_config(hindsight_url, bank_id) is None
    make_bank(hindsight_url, bank_id, retain_mission="Keep tea.")
    code, told = command(hindsight_url, "bank", "show", "--bank", "project")
    assert (code, "exists" in told, "Keep tea." in told) == (0, True, True)
    assert "tag: project:billing" in told


def test_a_bank_of_a_caller_is_looked_at_for_that_caller(hindsight_url, life_bank_id, command):
    code, told = command(hindsight_url, "bank", "show", "--bank", "life")
    assert (code, "{user_id}" in told) == (1, True)
    make_bank(hindsight_url, f"{life_bank_id}-anna")
    code, told = command(
        hindsight_url, "bank", "show", "--bank", "life", "--caller", "user_id=anna"
    )
    assert (code, f"{life_bank_id}-anna exists" in told) == (0, True)


def test_a_caller_that_is_no_pair_is_said(hindsight_url, command):
    code, told = command(hindsight_url, "bank", "missions", "--caller", "anna")
    assert (code, "NAME=VALUE" in told) == (1, True)


# Missions


@both
def test_missions_are_read_and_replaced_one_by_one(hindsight_url, bank_id, use_async):
    make_bank(hindsight_url, bank_id, retain_mission="A", reflect_mission="C")
    with open_memory(hindsight_url, bank_id) as memory:

        async def replace(bank):
            await bank.set_missions({"retain_mission": "B"})
            return await bank.missions()

        found = _manage(memory, "project", replace, use_async=use_async)
    assert found == {"retain_mission": "B", "reflect_mission": "C"}


@both
def test_a_mission_of_another_name_or_of_no_bank_is_refused(hindsight_url, bank_id, use_async):
    with open_memory(hindsight_url, bank_id) as memory:
        for missions, why in (
            ({"mission": "A"}, "retain_mission, observations_mission"),
            ({"retain_mission": "A"}, "does not exist yet"),
        ):
            with pytest.raises(HindsightError, match=why):
                _manage(
                    memory,
                    "project",
                    lambda bank, given=missions: bank.set_missions(given),
                    use_async=use_async,
                )
    assert bank_config(hindsight_url, bank_id) is None


def test_the_command_shows_and_sets_missions(hindsight_url, bank_id, command):
    make_bank(hindsight_url, bank_id)
    code, told = command(hindsight_url, "bank", "missions", "--set", "retain_mission=Keep tea.")
    assert (code, told) == (0, "retain_mission: Keep tea.\n")


@both
def test_whose_bank_cannot_be_told_is_refused(hindsight_url, bank_id, use_async):
    memory = DualBankMemory(hindsight_url, project_bank=f"{bank_id}-{{tenant}}", project_id="p")
    with memory:
        with pytest.raises(BankResolutionError):
            _manage(memory, "project", lambda bank: bank.look(), use_async=use_async)
        with pytest.raises(LifeBankDisabledError):
            _manage(memory, "life", lambda bank: bank.look(), use_async=use_async)


# Templates


def test_the_templates_are_listed_and_shown(hindsight_url, command):
    code, told = command(hindsight_url, "templates", "list")
    assert (code, all(name in told for name in TEMPLATES)) == (0, True)
    code, told = command(hindsight_url, "templates", "show", "life-coding")
    assert (code, '"retain_mission"' in told) == (0, True)
    assert command(hindsight_url, "templates", "show", "nothing")[0] == 1


def test_a_template_changes_nothing_until_it_is_written(hindsight_mock_url, bank_id, command):
    apply = ("templates", "apply", "project-coding", "--bank", "project")
    code, told = command(hindsight_mock_url, *apply)
    assert (code, "Nothing was changed" in told) == (0, True)
    assert bank_config(hindsight_mock_url, bank_id) is None
    code, told = command(hindsight_mock_url, *apply, "--write")
    assert (code, "Applied." in told) == (0, True)
    assert bank_config(hindsight_mock_url, bank_id) == TEMPLATES["project-coding"].missions
    code, told = command(hindsight_mock_url, "bank", "models", "list")
    assert "Decisions in force" in told


def test_without_an_llm_it_is_said_before_anything_is_applied_and_missions_can_be(
    hindsight_url, bank_id, command
):
    apply = ("templates", "apply", "project-coding", "--bank", "project", "--write")
    code, told = command(hindsight_url, *apply)
    assert (code, "no LLM" in told, "--missions-only" in told) == (1, True, True)
    assert bank_config(hindsight_url, bank_id) is None
    code, told = command(hindsight_url, *apply, "--missions-only")
    assert (code, "Applied." in told) == (0, True)
    assert bank_config(hindsight_url, bank_id) == TEMPLATES["project-coding"].missions


def test_a_template_of_the_other_bank_is_refused(hindsight_url, bank_id, command):
    code, told = command(hindsight_url, "templates", "apply", "life-coding", "--bank", "project")
    assert (code, "is no template for the project bank" in told) == (1, True)


# Mental models


@both
def test_projects_of_one_bank_have_mental_models_of_their_own(
    hindsight_mock_url, bank_id, use_async
):
    make_bank(hindsight_mock_url, bank_id)
    first = DualBankMemory(hindsight_mock_url, project_bank=bank_id, project_id="billing")
    second = DualBankMemory(hindsight_mock_url, project_bank=bank_id, project_id="shop")
    with first, second:
        made = _manage(
            first, "project", lambda b: b.create_model("Deploys", "When?"), use_async=use_async
        )
        assert made == model_id("Deploys", "project:billing")
        assert _manage(second, "project", lambda b: b.models(), use_async=use_async) == []
        for work in (lambda b: b.refresh_model(made), lambda b: b.delete_model(made)):
            with pytest.raises(HindsightError, match="no mental model"):
                _manage(second, "project", work, use_async=use_async)
        with pytest.raises(HindsightError, match="already"):
            _manage(first, "project", lambda b: b.create_model("Deploys", "?"), use_async=use_async)
        _manage(first, "project", lambda b: b.refresh_model(made), use_async=use_async)
        _manage(first, "project", lambda b: b.delete_model(made), use_async=use_async)
        assert _manage(first, "project", lambda b: b.models(), use_async=use_async) == []


@both
def test_a_model_manages_the_selected_banks_alone(hindsight_mock_url, bank_id, use_async):
    def call(what, **arguments):
        tool = tools[f"hindsight_{what}"]
        given = {"name": tool.name, "args": arguments, "id": "c1", "type": "tool_call"}
        return asyncio.run(tool.ainvoke(given)) if use_async else tool.invoke(given)

    make_bank(hindsight_mock_url, bank_id)
    with open_memory(hindsight_mock_url, bank_id) as memory:
        assert len(create_hindsight_tools(memory)) == 3
        tools = {one.name: one for one in create_hindsight_tools(memory, manage=True)}
        assert len(tools) == 9
        assert not any("bank_id" in one.args for one in tools.values())
        assert call("set_mission", mission="retain_mission", text="Keep tea.").content == "Set."
        assert "Keep tea." in call("get_missions").content
        assert "no mental models" in call("list_mental_models").content
        made = call("create_mental_model", name="Deploys", question="When do we deploy?")
        name = model_id("Deploys", "project:billing")
        assert name in made.content
        assert name in call("list_mental_models", bank="project").content
        assert call("refresh_mental_model", model_id=name).status == "success"
        assert call("delete_mental_model", model_id=name).content == "Deleted."
        assert call("delete_mental_model", model_id=name).status == "error"
        missing = call("list_mental_models", bank="life")
        assert (missing.status, "no Life Bank" in missing.content) == ("error", True)


@both
def test_a_server_without_an_llm_makes_no_mental_model_and_says_so(
    hindsight_url, bank_id, use_async
):
    make_bank(hindsight_url, bank_id)
    with open_memory(hindsight_url, bank_id) as memory:
        with pytest.raises(HindsightError, match="no LLM"):
            _manage(
                memory, "project", lambda b: b.create_model("Deploys", "When?"), use_async=use_async
            )
        assert _manage(memory, "project", lambda b: b.models(), use_async=use_async) == []
