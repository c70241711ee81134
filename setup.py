"""Packaging. `opspec/` and `rules/` lie at the top of the source tree and are installed inside the package as data."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
PACKED = {"taso._opspec": "opspec", "taso._rules": "rules"}  # taso/resources.py finds them under these names


def version() -> str:
    """Read taso/version.py without importing the package, whose dependencies may not be there yet."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "taso" / "version.py").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError("taso/version.py does not set __version__")
    return found[1]


def data(folder: str) -> list[str]:
    """List every file under a top-level folder, relative to it."""
    return sorted(
        str(path.relative_to(ROOT / folder))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


setup(
    name="taso",
    version=version(),
    description="Superoptimizer for ONNX graphs: rewrite rules discovered and proved, results measured",
    long_description=(ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["taso", "taso.*"]), *PACKED],
    package_dir=PACKED,
    package_data={
        "taso": ["py.typed", "**/*.lark", "**/*.toml"],
        **{package: data(folder) for package, folder in PACKED.items()},
    },
    install_requires=[
        "numpy>=1.26",
        "lark>=1.1.9",
        "z3-solver>=4.13",
        "onnx>=1.17",
        "click>=8.1",
        "rich>=13",
        "platformdirs>=4",
    ],
    extras_require={
        # Exactly one of the two runtimes: they install into the same folder and break each other.
        "cpu": ["onnxruntime>=1.20"],
        "gpu": ["onnxruntime-gpu>=1.20", "cupy-cuda12x>=13"],
        "cluster": ["ray>=2.9"],
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.5",
            "hypothesis>=6.100",
            "ruff~=0.17.6",
            "mypy~=2.4",
            # also without a GPU and a cluster: tests check what the enumerator calls, and run one of two workers
            "cupy-cuda12x>=13",
            "ray>=2.9",
        ],
    },
    entry_points={"console_scripts": ["taso=taso.cli:main"]},
)
