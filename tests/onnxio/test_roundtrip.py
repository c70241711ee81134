"""Models read and written again: the same nodes and the same bits, and, every node written anew, the same values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import checker

from bench.networks import NETWORKS
from taso.hardware.runtime import Worker
from taso.onnxio.load import load_model
from taso.onnxio.verify import compare
from tests.onnxio.models import Array, outputs, random_feeds, rewritten

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.onnx"))
RUNNABLE = [path for path in CASES if not path.stem.startswith("19") and "dropout_training" not in path.stem]
# Cases where nodes rightly disappear: copies, nodes that change nothing, two equal nodes.
FEWER = {"01", "02", "18", "28", "32"}


def feeds(path: Path, source: onnx.ModelProto, worker: Worker) -> dict[str, Array]:
    stored = path.with_suffix(".npz")
    if not stored.exists():
        return random_feeds(source, worker)
    arrays = np.load(stored)
    return {name.replace("__SLASH__", "/"): arrays[name] for name in arrays.files}


def same_interface(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    return (
        before.graph.input == after.graph.input
        and before.graph.output == after.graph.output
        and before.opset_import == after.opset_import
        and before.ir_version == after.ir_version
        and before.functions == after.functions
        and before.doc_string == after.doc_string
        and {(one.key, one.value) for one in before.metadata_props}
        <= {(one.key, one.value) for one in after.metadata_props}
    )


def identities(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    """What makes a node the same node; of its inputs only the names of equal stored tensors may have become one."""
    return [(one.op_type, one.name, one.doc_string, list(one.output), list(one.attribute)) for one in model.graph.node]


def same_bits(before: dict[str, Array], after: dict[str, Array]) -> bool:
    return before.keys() == after.keys() and all(
        before[name].dtype == after[name].dtype and np.array_equal(before[name], after[name], equal_nan=True)
        for name in before
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_keeps_its_nodes_and_bits(path: Path, worker: Worker) -> None:
    source = load_model(path)
    bytes_before = source.SerializeToString()
    written = rewritten(source)
    assert source.SerializeToString() == bytes_before
    assert same_interface(source, written)
    unread, kept = identities(source), identities(written)
    if path.stem.split("_")[0] in FEWER:
        assert len(kept) < len(unread)
        assert not Counter(op for op, *_ in kept) - Counter(op for op, *_ in unread)
    else:
        assert kept == unread
    if path in RUNNABLE:
        checker.check_model(written)
        inputs = feeds(path, source, worker)
        assert same_bits(outputs(source, inputs, worker), outputs(written, inputs, worker))


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
def test_a_case_written_anew_computes_the_same(path: Path, worker: Worker) -> None:
    source = load_model(path)
    written = rewritten(source, worker, origins=False, fold=True)
    checker.check_model(written)
    assert same_interface(source, written)
    assert written.ByteSize() < source.ByteSize() + 110_000
    inputs = feeds(path, source, worker)
    differences = compare(outputs(source, inputs, worker), outputs(written, inputs, worker))
    assert all(one.ok for one in differences), differences


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_keeps_its_nodes_and_bits(name: str, worker: Worker) -> None:
    source = NETWORKS[name](small=True)
    written = rewritten(source)
    inputs = random_feeds(source, worker)
    assert same_bits(outputs(source, inputs, worker), outputs(written, inputs, worker))
    if name == "nasnet_a":  # it pools one tensor twice in the same way
        assert len(written.graph.node) == len(source.graph.node) - 3
    else:
        assert identities(written) == identities(source)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_written_anew_computes_the_same(name: str, worker: Worker) -> None:
    source = NETWORKS[name](small=True)
    written = rewritten(source, worker, origins=False, fold=True)
    assert len(written.graph.node) <= len(source.graph.node)
    inputs = random_feeds(source, worker)
    differences = compare(outputs(source, inputs, worker), outputs(written, inputs, worker), rtol=1e-5)
    assert all(one.ok for one in differences), differences


def test_writing_twice_gives_the_same_bytes(worker: Worker) -> None:
    source = NETWORKS["training_form"](small=True)
    first = rewritten(source, worker, origins=False, fold=True).SerializeToString(deterministic=True)
    assert first == rewritten(source, worker, origins=False, fold=True).SerializeToString(deterministic=True)
