"""Checks that the built wheel imports by itself, and that the tests left the git tree clean."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = """
import pathlib, sys
import langchain_hindsight as package
assert pathlib.Path(sys.argv[1]) in pathlib.Path(package.__file__).parents, package.__file__
from importlib.metadata import version
from langchain_hindsight import DualBankMemory
DualBankMemory(project_bank="bank", project_id="project")
print("The wheel imports: langchain-hindsight", package.__version__)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
        subprocess.run([*build, "--no-deps", "--wheel-dir", folder, str(ROOT)], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        unpacked = Path(folder) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(unpacked)
        assert "langchain_hindsight/py.typed" in names, "py.typed is missing from the wheel"
        assert any(name.endswith("licenses/LICENSE") for name in names), "the licence is missing"
        code = f"import sys; sys.path.insert(0, sys.argv[1]); {CODE}"
        subprocess.run([sys.executable, "-c", code, str(unpacked)], check=True, cwd=folder)
    changes = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=all"]
    left = subprocess.run(changes, capture_output=True, text=True, check=True).stdout
    sys.exit(f"The tree is not clean:\n{left}" if left else 0)


if __name__ == "__main__":
    main()
