"""Who this project is."""

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
