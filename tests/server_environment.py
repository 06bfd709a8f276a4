"""Makes an environment with LangGraph's development server, over the one that runs this.

The server cannot share an environment with Hindsight's own: one needs protobuf below 7, the other
above. So it gets one that holds what differs and finds the rest in this one.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

REQUIREMENT = "langgraph-cli[inmem]>=0.4.4,<1"


def make(folder: Path) -> None:
    """Make it, anew where it is there already."""
    venv.create(folder, clear=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    kind = "nt" if sys.platform == "win32" else "posix_prefix"
    packages = Path(sysconfig.get_path("purelib", kind, scheme))
    beneath = sysconfig.get_path("purelib")
    line = f"import site; site.addsitedir({beneath!r})\n"
    (packages / "beneath.pth").write_text(line, encoding="utf-8")
    python = Path(sysconfig.get_path("scripts", kind, scheme)) / Path(sys.executable).name
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    # pip also tells that protobuf is now not the one that Hindsight asks for: that is the point.
    done = subprocess.run(
        [*pip, "install", "--quiet", REQUIREMENT], check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
