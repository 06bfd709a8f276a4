"""Who this project is."""

import os
import subprocess
import unicodedata

import pytest

from langchain_hindsight.project_identity import identify_project, normalize_remote


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:Owner/Name.git",
        "github.com:owner/name",
        "https://github.com/owner/name",
        "https://github.com/owner/name.git/",
        "https://user:secret@GitHub.com:443/Owner/Name.git",
        "ssh://git@github.com:22/owner/name.git",
        "git://github.com/owner/name.git",
        "git+ssh://git@github.com/owner/name",
        "ssh://github.com/Owner/Name/",
        "https://oauth2:made-up@github.com/owner/name.GIT",
        "someone:made-up@github.com:owner/name.git",
        "http://github.com:8080/owner/name.git",
    ],
)
def test_every_way_to_write_a_remote_is_one_project(url):
    assert normalize_remote(url) == "github-com-owner-name"


@pytest.mark.parametrize(
    ("url", "project_id"),
    [
        ("https://gitlab.example.org/group/sub/name.git", "gitlab-example-org-group-sub-name"),
        ("git@[2001:db8::1]:owner/name.git", "2001-db8-1-owner-name"),
        ("/srv/git/name.git", "name"),
        ("C:\\repositories\\name", "name"),
        ("file:///srv/git/name.git", "srv-git-name"),
        ("C:/repositories/name.git", "name"),
        ("\\\\host\\share\\name", "name"),
        ("../name", "name"),
        ("ssh://git@host.example:2222/~anna/name.git", "host-example-anna-name"),
        ("git@gitlab.example.org:group/sub/deep/name", "gitlab-example-org-group-sub-deep-name"),
        ("https://[not-an-address/name", ""),
        ("git@h:owner/name.git", "h-owner-name"),
        ("[host.example:2222]:owner/name.git", "host-example-owner-name"),
        ("git@[host.example:2222]:owner/name.git", "host-example-owner-name"),
    ],
)
def test_other_remotes_have_readable_ids(url, project_id):
    assert normalize_remote(url) == project_id


def repository(folder, config):
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "config").write_text(config, encoding="utf-8")
    return folder


ORIGIN = """
[core]
    bare = false
[remote "fork"]
    url = https://x.org/a/b
[remote "origin"]
    url = git@github.com:owner/name.git
"""


def test_the_remote_named_origin_decides(tmp_path):
    inside = repository(tmp_path / "checkout", ORIGIN) / "src" / "deep"
    inside.mkdir(parents=True)
    assert identify_project(inside) == "github-com-owner-name"


def test_a_repository_without_a_remote_is_known_by_its_folder(tmp_path):
    root = repository(tmp_path / "My Project", "[core]\n")
    (root / "src").mkdir()
    assert identify_project(root / "src") == "my-project"


def test_a_folder_without_a_repository_is_known_by_its_name(tmp_path):
    folder = tmp_path / "Notes"
    folder.mkdir()
    assert identify_project(folder) == "notes"


@pytest.mark.parametrize(
    ("one", "other"), [("का", "की"), ("กี", "กู"), ("தா", "தி"), ("שָׁ", "שֶׁ"), ("बैंक", "बांका")]
)
def test_marks_on_letters_keep_two_folders_apart(tmp_path, one, other):
    assert identify_project(tmp_path / one) != identify_project(tmp_path / other)


@pytest.mark.parametrize("name", ["Café", "Ångström", "が", "Jörg ΐ"])
def test_a_folder_has_one_id_in_whatever_form_its_name_is_stored(tmp_path, name):
    ids = {
        identify_project(tmp_path / unicodedata.normalize(form, name)) for form in ("NFC", "NFD")
    }
    assert len(ids) == 1


@pytest.mark.parametrize("name", ["+++", "🚀", "❤\ufe0f"])
def test_a_folder_of_signs_alone_is_a_project_all_the_same(tmp_path, name):
    assert identify_project(tmp_path / name) == "project"


def test_the_folder_strategy_leaves_the_remote_out(tmp_path):
    assert identify_project(repository(tmp_path / "checkout", ORIGIN), "folder") == "checkout"


def test_a_worktree_belongs_to_its_repository(tmp_path):
    main = repository(tmp_path / "checkout", ORIGIN)
    linked = main / ".git" / "worktrees" / "other"
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n", encoding="utf-8")
    tree = tmp_path / "other"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {linked}\n", encoding="utf-8")
    assert identify_project(tree) == "github-com-owner-name"


def test_a_submodule_is_a_project_of_its_own(tmp_path):
    outer = repository(tmp_path / "outer", ORIGIN)
    modules = outer / ".git" / "modules" / "inner"
    modules.mkdir(parents=True)
    (modules / "config").write_text(ORIGIN.replace("name.git", "inner.git"), encoding="utf-8")
    inner = outer / "inner"
    inner.mkdir()
    (inner / ".git").write_text("gitdir: ../.git/modules/inner\n", encoding="utf-8")
    assert identify_project(inner) == "github-com-owner-inner"


@pytest.mark.parametrize("config", ["", "\x00\xff", '[remote "origin"]\n', "[remote"])
def test_a_config_without_a_usable_remote_leaves_the_folders_name(tmp_path, config):
    assert identify_project(repository(tmp_path / "checkout", config)) == "checkout"


@pytest.mark.parametrize(
    "config",
    [
        '[remote "origin"] url = git@github.com:owner/name.git\n',
        '[remote "origin"]\n\turl = "git@github.com:owner/name.git"\n',
        '[remote "origin"]\n\turl = git@github.com:owner/name.git ; where it is\n',
        '[REMOTE "origin"]\r\n\tfetch = +refs\r\n\tURL=git@github.com:owner/name.git\r\n',
        '[url "git@mirror.example:"]\n\tinsteadOf = git@github.com:\n' + ORIGIN,
        "[include]\n\tpath = other\n" + ORIGIN,
        '\ufeff[remote "origin"]\n\turl = git@github.com:owner/name.git\n',
        '[remote "Origin"]\n\turl = https://x.org/a/b\n' + ORIGIN,
    ],
)
def test_a_config_is_read_however_it_is_written(tmp_path, config):
    assert identify_project(repository(tmp_path / "checkout", config)) == "github-com-owner-name"


@pytest.mark.parametrize("content", ["gitdir: /nowhere/at/all", "gitdir:", "", "\x00", "x" * 5000])
def test_a_git_file_that_leads_nowhere_leaves_the_folders_name(tmp_path, content):
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / ".git").write_text(content, encoding="utf-8")
    assert identify_project(folder) == "checkout"


def test_a_bare_repository_is_known_by_its_folder(tmp_path):
    bare = tmp_path / "name.git"
    bare.mkdir()
    (bare / "config").write_text("[core]\n\tbare = true\n", encoding="utf-8")
    assert identify_project(bare) == "name-git"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes among files here")
@pytest.mark.timeout(20)
def test_a_pipe_where_a_file_should_be_does_not_hang(tmp_path):
    first = repository(tmp_path / "first", "")
    (first / ".git" / "config").unlink()
    os.mkfifo(first / ".git" / "config")
    second = tmp_path / "second"
    second.mkdir()
    os.mkfifo(second / ".git")
    assert (identify_project(first), identify_project(second)) == ("first", "second")


def test_a_folder_that_may_not_be_looked_into_is_passed_over(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.exists", refuse)
    assert identify_project(tmp_path / "notes") == "notes"


def test_no_program_is_run_and_no_home_is_needed(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    for name in ("HOME", "USERPROFILE", "PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "system", refuse)
    assert identify_project(repository(tmp_path / "c", ORIGIN)) == "github-com-owner-name"


def test_no_credential_of_a_remote_is_part_of_the_id():
    for url in ("https://anna:made-up@host.example/o/n", "anna:made-up@host.example:o/n"):
        assert normalize_remote(url) == "host-example-o-n"
