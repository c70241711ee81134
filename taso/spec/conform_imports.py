"""Does an `import` line read a node as ONNX means it? Random nodes of its type, against onnx's reference.

The line itself says what a node may look like: shapes come from the operators that its term applies, attribute values
from the defaults and the strings that the line compares with, constant inputs from a few habits of ONNX (lists of axes,
shapes with 0 and -1, sizes of parts, paddings). What the line does not apply to is thrown away.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from taso.errors import TasoError
from taso.graph.graph import CONSTANT, INPUT, Arena, Graph, TensorType
from taso.graph.graph import Value as GraphValue
from taso.onnxio.reading import NotRead, bind, mentions, read
from taso.spec import syntax as s
from taso.spec.conform import KINDS, Conformance, compare
from taso.spec.evaluate import Scope, evaluate
from taso.spec.lower import run
from taso.spec.node import NodeCase, newest_opset, node_of, schema
from taso.spec.sample import Concrete, Sizes, draw, draw_real, draw_shape, draw_tensor
from taso.spec.spec import Spec
from taso.spec.value import Value

ATTEMPTS = 400  # nodes drawn for one that the import applies to


def conform_import(spec: Spec, rule: s.Import, *, tries: int = 20, seed: int = 0) -> Conformance:
    """Compare what an import line makes of `tries` random nodes with what ONNX computes.

    The nodes are read by the code that reads models. The same arguments give the same nodes.
    """
    name = import_title(rule)
    rng = random.Random(zlib.crc32(f"{seed} {name}".encode()))
    found = Conformance(name, 1)
    line = _Line(rule)
    compare(found, partial(_case, spec, line, rng), tries)
    return found


class _Line:
    """An import line, with what its syntax tells about the nodes that it is for.

    ranks: a guess for each tensor: one more than the largest k of any `dim(tensor, k)`; 0 if there is none.
    """

    def __init__(self, rule: s.Import) -> None:
        self.rule = rule
        said = rule.body, rule.when
        self.reads_output = mentions(said, "output")
        self.several = self.reads_output or mentions(said, "outputs")
        self.ranks = {param.name: _rank_spoken_of(said, param.name) for param in rule.params}
        self.strings = _strings(rule)


def import_title(rule: s.Import) -> str:
    """How a line is called in reports: `import Split(x, split; axis) since 13`."""
    params = ", ".join(p.name + ("..." if p.kind == "variadic" else "") for p in rule.params)
    attrs = "; " + ", ".join(name for name, _ in rule.attrs) if rule.attrs else ""
    until = f" until {rule.until}" if rule.until else ""
    return f"import {rule.op_type}({params}{attrs}) since {rule.since}{until}"


@dataclass
class _Node:
    """A node being drawn: one shape per input (None for an empty slot), constant inputs by slot."""

    shapes: list[Concrete | None] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    outputs: int = 1


def _case(spec: Spec, line: _Line, rng: random.Random, k: int) -> tuple[np.ndarray, NodeCase, int] | None:
    rule = line.rule
    last = rule.until or newest_opset(rule.domain)
    opset = (rule.since, last, rng.randint(rule.since, max(rule.since, last)))[k % 3]
    for _ in range(ATTEMPTS):
        try:
            node = _draw_node(spec, line, opset, rng)
            output = rng.randrange(node.outputs) if line.reads_output else 0
            value = _read(spec, rule, node, opset, output)
        except (TasoError, NotRead):
            continue
        feeds = {f"x{slot}": draw_tensor(shape, rng, KINDS[k % len(KINDS)]) for slot, shape in enumerate(node.shapes)
                 if shape is not None and slot not in node.constants}  # fmt: skip
        inputs = tuple(node.constants.get(slot, feeds.get(f"x{slot}")) for slot in range(len(node.shapes)))
        case = NodeCase(
            rule.op_type, rule.domain, opset, inputs, node.attributes, node.outputs, frozenset(node.constants)
        )
        ours = _compute(spec, value, feeds)
        if ours.size > 0 or rng.random() < 0.1:  # an empty result says little
            return ours, case, output
    return None


def _read(spec: Spec, rule: s.Import, node: _Node, opset: int, output: int) -> GraphValue:
    """What the import line says that an output is, in a graph of its own; raises NotRead, ShapeError or SpecError."""
    arena = Arena(spec)
    values: dict[str, GraphValue] = {}
    known: dict[str, np.ndarray] = {}
    names = []
    for slot, shape in enumerate(node.shapes):
        name = f"x{slot}" if shape is not None else ""
        names.append(name)
        if slot in node.constants:
            known[name] = node.constants[slot]
            values[name] = arena.constant(known[name], "double" if known[name].dtype.kind == "f" else "int64")
        elif shape is not None:
            values[name] = arena.input(name, TensorType("double", shape))
    proto = node_of(rule.op_type, rule.domain, opset, names, node.attributes, node.outputs)
    return read(rule, bind(rule, proto, values, known.get, output), arena)


def _compute(spec: Spec, value: GraphValue, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The number behind a graph value, by the operators' declarations."""
    done: dict[int, np.ndarray] = {}
    for node in Graph((value,), ()).nodes():
        if node.op == INPUT:
            done[node.uid] = feeds[node.payload]
        elif node.op == CONSTANT:
            done[node.uid] = np.asarray(node.payload)
        else:
            args = [done[arg.node.uid] for arg in node.args]
            done[node.uid] = run(
                spec.operators[node.op], args, dict(node.attrs), result_shape=_ints(node.types[0].shape)
            )
    return done[value.node.uid]


def _ints(shape: Any) -> Concrete:
    return tuple(int(n) for n in shape)


def _draw_node(spec: Spec, line: _Line, opset: int, rng: random.Random) -> _Node:
    rule, sizes = line.rule, Sizes(rng)
    shapes, suggested = _tensor_shapes(spec, line, sizes, rng)
    known = schema(rule.op_type, rule.domain, opset)
    several = line.several and known is not None and known.max_output > 1
    node = _Node(outputs=rng.randint(1, 3) if several else 1)
    for param in rule.params:
        if param.kind == "tensor":
            node.shapes.append(shapes[param.name][0])
        elif param.kind == "variadic":
            node.shapes.extend(shapes[param.name])
        elif param.kind == "none":
            node.shapes.append(None)
        else:
            array = _constant(param.kind, shapes, node, sizes, rng)
            node.constants[len(node.shapes)] = array
            node.shapes.append(array.shape)
    _draw_attributes(line, shapes, suggested, node, opset, sizes, rng)
    return node


# --- shapes of tensor inputs ---------------------------------------------------------------------------------------


def _tensor_shapes(
    spec: Spec, line: _Line, sizes: Sizes, rng: random.Random
) -> tuple[dict[str, list[Concrete]], dict[str, Value]]:
    """Shapes for which the operators that read the inputs directly are defined, where there are such operators.

    Also attributes of the node for which they are: those that the line hands on to such an operator as they are.
    """
    found: dict[str, list[Concrete]] = {}
    suggested: dict[str, Value] = {}
    for apply in _applications(line.rule.body):
        if isinstance(apply, s.Fold):
            found[apply.over] = _fold_shapes(spec, apply, sizes, rng)
            continue
        places = {k: _direct(arg) for k, arg in enumerate(apply.args)}
        wanted = {k: name for k, name in places.items() if name is not None}
        if all(name in found for name in wanted.values()):
            continue
        known = {k: found[name][0] for k, name in wanted.items() if name in found}
        sample = draw(spec.declared(apply.op, apply.pos), rng, shapes=known, tries=30)
        if sample is not None:
            for k, name in wanted.items():
                found.setdefault(name, [sample.shapes[k]])
            suggested |= {expr.id: sample.attrs[name] for name, expr in apply.attrs if isinstance(expr, s.Name)}
    for param in line.rule.params:
        rank = line.ranks[param.name]
        if rank > 0 and rng.random() < 0.5:
            found[param.name] = [tuple(sizes.size() for _ in range(rank))]
        elif param.kind in ("tensor", "variadic") and param.name not in found:
            found[param.name] = [draw_shape([f[0] for f in found.values()], sizes, rng)]
    return found, suggested


def _rank_spoken_of(expr: object, tensor: str) -> int:
    """One more than the largest k of any `dim(tensor, k)`; 0 if there is none."""
    if isinstance(expr, s.Call) and expr.function == "dim" and len(expr.args) == 2 and mentions(expr.args[0], tensor):
        axis = expr.args[1]
        return int(axis.value) + 1 if isinstance(axis, s.Num) and axis.value >= 0 else 0
    if isinstance(expr, tuple):
        return max((_rank_spoken_of(item, tensor) for item in expr), default=0)
    fields = getattr(expr, "__dataclass_fields__", {})
    return max((_rank_spoken_of(getattr(expr, name), tensor) for name in fields), default=0)


def _applications(term: s.Term) -> Iterator[s.Apply | s.Fold]:
    match term:
        case s.Fold():
            yield term
        case s.Choose(_, then, otherwise):
            yield from _applications(then)
            yield from _applications(otherwise)
        case s.Apply(_, args):
            yield term
            for arg in args:
                yield from _applications(arg)


def _direct(term: s.Term) -> str | None:
    """The tensor that stands at a place, looking through conditions."""
    match term:
        case s.Var(name):
            return name
        case s.Choose(_, then, otherwise):
            return _direct(then) or _direct(otherwise)
    return None


def _fold_shapes(spec: Spec, fold: s.Fold, sizes: Sizes, rng: random.Random) -> list[Concrete]:
    declared = spec.declared(fold.op, fold.pos)
    first = draw(declared, rng)
    if first is None:
        return [sizes.list()]
    shapes = [first.shapes[0]]
    total, attrs = first.result, first.attrs
    for _ in range(rng.choice([0, 1, 1, 2])):
        more = draw(declared, rng, shapes={0: shapes[0] if len(shapes) == 1 else total or ()}, attrs=attrs, tries=50)
        if more is not None:
            shapes.append(more.shapes[1])
            total = more.result
    return shapes


# --- attributes and constants --------------------------------------------------------------------------------------


def _draw_attributes(
    line: _Line, shapes: dict[str, list[Concrete]], suggested: dict[str, Value], node: _Node, opset: int,
    sizes: Sizes, rng: random.Random,
) -> None:  # fmt: skip
    rule = line.rule
    known = schema(rule.op_type, rule.domain, opset)
    first = {name: listed[0] for name, listed in shapes.items()}
    scope = Scope({"outputs": node.outputs, "output": 0}, first)
    for name, default in rule.attrs:
        value = evaluate(default, scope) if default is not None else None
        scope.values[name] = value
        if (known is not None and name not in known.attributes) or (default is not None and rng.random() < 0.4):
            continue  # an attribute of other opsets; or one that is left out
        kind = known.attributes[name].type.name if known is not None else ""
        if name in suggested and rng.random() < 0.8:
            value = suggested[name]
        else:
            value = _attribute(line, kind, value, first, scope, sizes, rng)
        node.attributes[name] = scope.values[name] = value


def _attribute(
    line: _Line, kind: str, default: Value, shapes: dict[str, Concrete], scope: Scope,
    sizes: Sizes, rng: random.Random,
) -> Value:  # fmt: skip
    rank = len(next(iter(shapes.values()), ()))
    if kind == "STRING" or isinstance(default, str):
        return rng.choice(line.strings or [""])
    if kind == "FLOAT" or isinstance(default, (float, Fraction)):
        return draw_real(default, rng)
    if kind == "INT" or isinstance(default, int):
        near = [default, default + 1, 1 - default] if isinstance(default, int) else []
        return rng.choice([*near, 0, 1, rng.randint(-max(rank, 1), max(rank - 1, 0)), rng.randint(1, 4)])
    if isinstance(default, tuple) and default:
        least = min(default)
        return tuple(least + rng.choice([0, 0, 1, 2]) for _ in default)
    others = [len(scope.values[other]) for other in scope.values if isinstance(scope.values[other], tuple)]
    if others and rng.random() < 0.8:
        return _companion(others[-1], rank, rng)
    return _int_list(shapes, sizes, rng)


def _strings(expr: object) -> list[str]:
    """All strings that a line mentions."""
    if isinstance(expr, s.Str):
        return [expr.value]
    if isinstance(expr, tuple):
        return [text for item in expr for text in _strings(item)]
    if hasattr(expr, "__dataclass_fields__"):
        return [text for field in expr.__dataclass_fields__ for text in _strings(getattr(expr, field))]
    return []


def _constant(
    kind: str, shapes: dict[str, list[Concrete]], node: _Node, sizes: Sizes, rng: random.Random
) -> np.ndarray:
    first = {name: listed[0] for name, listed in shapes.items()}
    if kind == "real":
        return np.asarray(float(draw_real(None, rng)))
    if kind == "int":
        return np.asarray(rng.randint(-3, 4), np.int64)
    lengths = [array.size for array in node.constants.values() if array.ndim == 1]
    if lengths and rng.random() < 0.9:
        return np.asarray(_companion(lengths[-1], len(next(iter(first.values()), ())), rng), np.int64)
    return np.asarray(_int_list(first, sizes, rng), np.int64)


def _companion(length: int, rank: int, rng: random.Random) -> Concrete:
    """A list that belongs to another of the same length: different axes, steps, or any small numbers."""
    kind = rng.choice(["axes", "steps", "any"])
    if kind == "axes" and length <= rank:
        return tuple(axis - rng.choice([0, rank]) for axis in rng.sample(range(rank), length))
    if kind == "steps":
        return tuple(rng.choice([1, 1, 2, 3]) for _ in range(length))
    return tuple(rng.choice([-1, 0, rng.randint(-5, 6)]) for _ in range(length))


def _int_list(shapes: dict[str, Concrete], sizes: Sizes, rng: random.Random) -> Concrete:
    """A list of integers as ONNX nodes have them."""
    shape = next(iter(shapes.values()), ())
    makers: list[Callable[[], Any]] = [
        lambda: rng.sample(range(-len(shape), len(shape)), min(len(shape), rng.randint(1, 3))),
        lambda: sorted(rng.sample(range(len(shape) + 1), rng.randint(1, len(shape) + 1))),
        lambda: [rng.choice([n, n, 0, -1]) for n in draw_shape([shape], sizes, rng)],
        lambda: draw_shape([shape], sizes, rng),
        lambda: _parts(rng.choice(shape or (1,)), rng),
        lambda: [rng.randint(-5, 5) for _ in range(rng.choice([1, 1, 2, len(shape)]))],
        lambda: [rng.randint(0, 2) for _ in range(rng.choice([len(shape), 2 * len(shape), max(len(shape) - 2, 0)]))],
        lambda: [rng.randint(1, 3) for _ in range(max(len(shape) - 2, 0))],
    ]
    return tuple(int(v) for v in rng.choice(makers)())


def _parts(size: int, rng: random.Random) -> list[int]:
    """A size cut into up to three positive parts."""
    cuts = sorted(rng.sample(range(1, size), min(rng.randint(0, 2), size - 1)))
    return [b - a for a, b in zip([0, *cuts], [*cuts, size])]
