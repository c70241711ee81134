"""Small models for tests: a model from node lines, and running two models side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from taso.graph.graph import Arena
from taso.hardware.runtime import Worker
from taso.onnxio.context import Imported
from taso.onnxio.export import export_model
from taso.onnxio.import_ import import_model
from taso.onnxio.load import default_sizes
from taso.onnxio.tile import Tiler
from taso.onnxio.verify import input_sets
from taso.spec.spec import load_spec

Array = np.ndarray[Any, Any]


def model(text: str, opset: int = 17, ir_version: int = 8, **tensors: Array) -> onnx.ModelProto:
    """A model in onnx's own text form (only the graph), with stored tensors added by name."""
    header = f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
    made = parser.parse_model(header + text)
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return made


def imported(source: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> Imported:
    """The model as a graph, with an arena of its own."""
    return import_model(source, Arena(load_spec()), shapes)


def rewritten(
    source: onnx.ModelProto,
    worker: Worker | None = None,
    *,
    origins: bool = True,
    fold: bool = False,
    growth: float = 0.1,
) -> onnx.ModelProto:
    """The model read and written again; without origins every node that is understood is written anew."""
    found = imported(source)
    tiler = Tiler(found.context, found.context.arena, use_origins=origins)
    return export_model(found.graph, found.context, tiler, max_growth=growth, fold_constants=fold, worker=worker)


def outputs(source: onnx.ModelProto, inputs: Mapping[str, Array], worker: Worker) -> dict[str, Array]:
    """What onnxruntime computes without optimisations."""
    worker.load("model", source.SerializeToString(), level="disabled")
    try:
        return worker.run("model", inputs)
    finally:
        worker.drop("model")


def random_feeds(source: onnx.ModelProto, worker: Worker) -> dict[str, Array]:
    """Random inputs on which the model runs."""
    return input_sets(source, default_sizes(source), 1, 0, worker)[0]


def operators(source: onnx.ModelProto) -> list[str]:
    """The operators of the main graph's nodes, in order."""
    return [node.op_type for node in source.graph.node]


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of a node's attribute."""
    return next(helper.get_attribute_value(one) for one in node.attribute if one.name == name)
