"""Unit tests see no configuration of the machine's, and no outbox but their own."""

import os

import pytest
from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch, tmp_path):
    for name in os.environ:
        if name.startswith("HINDSIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", f"sqlite:///{tmp_path / 'outbox.db'}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
