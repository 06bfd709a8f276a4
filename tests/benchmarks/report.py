"""Shows figures: a table, a JSON file and, where matplotlib is installed, a plot."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from figures import Figure
from rich.console import Console
from rich.table import Table

_PACKAGES = (
    *("langchain-hindsight", "hindsight-client", "hindsight-api-slim", "langchain-core"),
    *("langgraph", "hindsight-langgraph", "sqlalchemy", "aiohttp"),
)


def machine() -> dict[str, object]:
    """Where and with what it was measured, and how busy the machine was."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "platform": platform.platform(terse=True),
        "python": platform.python_version(),
        "load": load,
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def show(figures: Sequence[Figure], where: Mapping[str, object]) -> None:
    """Print the table."""
    table = Table(title="Figures are medians of the runs; the spread is their lowest and highest")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("spread", justify="right")
    table.add_column("bar", justify="right")
    table.add_column("")
    table.add_column("median, ms")
    marks = {True: "[green]pass[/]", False: "[bold red]miss[/]", None: ""}
    for one in figures:
        table.add_row(
            one.name,
            f"{one.value:.3g} {one.unit}",
            f"{min(one.values):.3g} to {max(one.values):.3g}" if len(one.values) > 1 else "",
            str(one.bar or ""),
            marks[one.passed],
            ", ".join(f"{side} {value:.3g}" for side, value in (one.sides or {}).items()),
        )
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(table)
    packages = where["packages"]
    assert isinstance(packages, dict)
    console.print(
        f"{where['cores']} cores, {where['processor']}, {where['platform']}, Python "
        f"{where['python']}, load {where['load']}; "
        + ", ".join(f"{name} {found}" for name, found in packages.items()),
        highlight=False,
    )


def write(figures: Sequence[Figure], where: Mapping[str, object], folder: Path) -> list[Path]:
    """Write what was found to a folder.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "bench.json"
    found = {"machine": where, "figures": [one.as_json() for one in figures]}
    data.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        return [data]
    picture = folder / "bench.png"
    _draw([one for one in figures if one.bar and one.bar.limit], where, picture)
    return [data, picture]


def _draw(figures: Sequence[Figure], where: Mapping[str, object], path: Path) -> None:
    """Each figure as a share of its bar: left of the line is better, whiskers are the spread."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, axes = plt.subplots(figsize=(11, 0.45 * len(figures) + 1.6), layout="constrained")
    for row, one in enumerate(reversed(figures)):
        shares = [_share(one, value) for value in one.values]
        middle = _share(one, one.value)
        color = "tab:green" if one.passed else "tab:red"
        axes.plot([min(shares), max(shares)], [row, row], color=color, alpha=0.4, linewidth=5)
        axes.plot([middle], [row], "o", color=color)
        axes.annotate(
            f"{one.value:.3g} {one.unit}",
            (middle, row),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(
        range(len(figures)), [f"{one.name}  ({one.bar} {one.unit})" for one in reversed(figures)]
    )
    axes.set_ylim(-0.6, len(figures) - 0.2)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("share of the bar: left of the line meets it (median and range of the runs)")
    axes.set_title(f"{where['cores']} cores, Python {where['python']}", fontsize=9)
    drawing.savefig(path, dpi=150)
    plt.close(drawing)


def _share(figure: Figure, value: float) -> float:
    """How much of what the bar allows is used; 1 or less meets it."""
    assert figure.bar is not None
    share = figure.bar.limit / value if figure.bar.at_least else value / figure.bar.limit
    return max(share, 1e-3)  # what is added may be nothing or less


def _processor() -> str:
    """The processor's name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
