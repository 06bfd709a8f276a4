"""What can be imported, and what importing costs."""

import ast
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import langchain_hindsight

NAMES = {
    "BankRecall",
    "BankResolutionError",
    "ConfigurationError",
    "DualBankMemory",
    "FlushReport",
    "HindsightError",
    "HindsightMemory",
    "HindsightMiddleware",
    "HindsightRetriever",
    "HindsightSettings",
    "LifeBankDisabledError",
    "MemoryState",
    "OutboxStatus",
    "RecallResult",
    "RecalledMemory",
    "RetainReceipt",
    "__version__",
    "ainject_memory",
    "create_hindsight_tools",
    "create_recall_node",
    "create_retain_node",
    "inject_memory",
}


def loaded_after(code):
    """The top-level modules that a fresh interpreter has loaded after some code."""
    shown = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{shown}"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_the_public_names_are_these():
    assert set(langchain_hindsight.__all__) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_can_be_had(name):
    assert getattr(langchain_hindsight, name)


def test_a_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = langchain_hindsight.no_such_name


def test_dir_lists_the_public_names():
    assert set(dir(langchain_hindsight)) == NAMES


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"hindsight_client", "langchain", "langchain_classic", "langchain_core", "langgraph"}
    heavy |= {"pydantic", "sqlalchemy", "toktok", "aiohttp", "rich", "typer"}
    assert not heavy & loaded_after("import langchain_hindsight")


@pytest.mark.parametrize("name", ["DualBankMemory", "HindsightRetriever", "create_hindsight_tools"])
def test_the_client_and_the_extras_stay_unloaded_until_they_are_needed(name):
    heavy = {"hindsight_client", "hindsight_client_api", "langchain", "langchain_classic"}
    assert not heavy & loaded_after(f"from langchain_hindsight import {name}")


@pytest.mark.parametrize("name", ["DualBankMemory", "HindsightRetriever"])
def test_what_masks_credentials_stays_unloaded_until_something_is_masked(name):
    unloaded = "import sys; assert 'langchain_hindsight.redaction' not in sys.modules"
    loaded_after(f"from langchain_hindsight import {name}; {unloaded}")


@pytest.mark.parametrize("outbox", [None, "empty", "sqlite"])
def test_constructing_a_memory_starts_no_thread_and_loads_no_client(tmp_path, outbox):
    file = tmp_path / "outbox.db"
    if outbox == "sqlite":
        with closing(sqlite3.connect(file)) as made:
            made.execute("CREATE TABLE hindsight_outbox_version (version INTEGER)")
    url = None if outbox is None else f"sqlite:///{file.as_posix()}"
    code = (
        "import threading; from langchain_hindsight import DualBankMemory, HindsightSettings\n"
        f"settings = HindsightSettings(outbox={{'url': {url!r}}})\n"
        "DualBankMemory(project_bank='b', project_id='p', life_bank='life-{user_id}',"
        " settings=settings)\n"
        "assert threading.active_count() == 1"
    )
    assert not {"hindsight_client", "aiohttp", "sqlalchemy"} & loaded_after(code)


def test_the_database_library_is_entered_by_the_front_everywhere():
    # Where one thread enters by a submodule and another by the front, each may see half of it.
    package = Path(langchain_hindsight.__file__).parent
    scopes = [
        (path, scope)
        for path in package.rglob("*.py")
        for scope in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    entered = {
        path.name: first
        for path, scope in scopes
        if (first := next(_modules_imported(scope, "sqlalchemy"), "sqlalchemy")) != "sqlalchemy"
    }
    assert entered == {}


def _modules_imported(scope, package):
    for node in scope.body:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name for name in names if name.partition(".")[0] == package)
