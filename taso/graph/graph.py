"""An immutable, hash-consed graph of operators.

A `Node` is an operator of the specification, an opaque ONNX node, a graph input or a constant. Equal nodes of one
`Arena` are one object, so equality is identity and common subexpressions exist once. A `Graph` is a tuple of output
values; a rewrite makes a new `Graph` that shares everything it does not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taso.algebra.poly import Quantity
from taso.errors import ShapeError
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.evaluate import Scope, evaluate, holds, real_division
from taso.spec.shapes import solve
from taso.spec.spec import Spec
from taso.spec.traits import commutative
from taso.spec.value import Shape

Attrs = tuple[tuple[str, Any], ...]
INPUT, CONSTANT, OPAQUE = "<input>", "<constant>", "<opaque>"


@dataclass(frozen=True)
class TensorType:
    """`dtype` is an ONNX element type in lower case ("float", "int64", ...) or "" if it is not a tensor or not known;
    `shape` is None where even the rank is not known."""

    dtype: str
    shape: Shape | None


@dataclass(eq=False)
class Node:
    """One operation. Compare with `is`; nodes are made by an `Arena` only.

    `op` is the name of an operator of the specification, or INPUT, CONSTANT or OPAQUE. `payload` is the input's name,
    the constant's array, or the opaque node's own description. `constant` says that the value depends on no input.
    """

    uid: int
    op: str
    args: tuple[Value, ...]
    attrs: Attrs
    types: tuple[TensorType, ...]
    payload: Any = None
    constant: bool = False

    def __repr__(self) -> str:
        return f"%{self.uid}:{self.op}"

    def attr(self, name: str) -> Any:
        return dict(self.attrs)[name]


class Value(NamedTuple):
    """One output of a node."""

    node: Node
    index: int = 0  # type: ignore[assignment]

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def shape(self) -> Shape | None:
        return self.type.shape


@dataclass
class Arena:
    """Makes nodes and keeps one of each. All graphs of one optimization share an arena.

    equal: for values that a rewrite made, an older value that they are equal to; names and descriptions carry over.
    """

    spec: Spec
    nodes: dict[Any, Node] = field(default_factory=dict)
    equal: dict[Value, Value] = field(default_factory=dict)

    def older(self, value: Value) -> Iterator[Value]:
        """The value and those that it is equal to by the rewrites that made it, the nearest first."""
        seen: set[Value] = set()
        here: Value | None = value
        while here is not None and here not in seen:
            seen.add(here)
            yield here
            here = self.equal.get(here)

    def _intern(self, key: Any, **fields: Any) -> Node:
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(len(self.nodes), **fields)
        return node

    def input(self, name: str, type_: TensorType) -> Value:
        return Value(self._intern((INPUT, name), op=INPUT, args=(), attrs=(), types=(type_,), payload=name))

    def constant(self, array: np.ndarray, dtype: str) -> Value:
        """A constant; equal arrays of one type are one node. `dtype` is the ONNX element type ("float", ...)."""
        digest = hashlib.sha256(
            np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(array.tolist()).encode()
        )
        key = (CONSTANT, dtype, array.shape, digest.hexdigest())
        type_ = TensorType(dtype, tuple(map(int, array.shape)))
        return Value(self._intern(key, op=CONSTANT, args=(), attrs=(), types=(type_,), payload=array, constant=True))

    def stored(self, key: Any, type_: TensorType, payload: Any) -> Value:
        """A constant whose elements are not looked at: `numpy.asarray(payload)` reads them. Equal keys are one."""
        fields: dict[str, Any] = {"args": (), "attrs": (), "types": (type_,), "payload": payload}
        return Value(self._intern((CONSTANT, key), op=CONSTANT, constant=True, **fields))

    def opaque(
        self, payload: Any, key: Any, args: Sequence[Value], types: Sequence[TensorType], *, constant: bool = False
    ) -> Node:
        """A node that the specification does not know. `key` must tell nodes apart that must not be merged."""
        return self._intern(
            (OPAQUE, key, tuple(args)),
            op=OPAQUE,
            args=tuple(args),
            attrs=(),
            types=tuple(types),
            payload=payload,
            constant=constant,
        )

    def apply(self, op: str, args: Sequence[Value], attrs: Mapping[str, Any], *, result: Shape | None = None) -> Value:
        """An operator of the specification applied to values; where it changes nothing, the argument itself.

        Raises ShapeError if the shapes, types or attributes do not fit.
        """
        declared = self.spec.operators[op]
        shapes = []
        for arg in args:
            if arg.shape is None:
                raise ShapeError(f"{op}: the rank of {arg} is not known")
            shapes.append(arg.shape)
        signature = solve(declared, shapes, attrs, result=result)
        assert signature.result is not None
        if result is not None and signature.result != result:
            raise ShapeError(f"{op}: the result has the shape {signature.result}, not {result}")
        if declared.identity is not None and holds(declared.identity, signature.scope) is True:
            return args[0]
        dtypes = {arg.type.dtype for arg in args}
        if len(dtypes) > 1:
            raise ShapeError(f"{op}: element types {sorted(dtypes)} differ")
        dtype = dtypes.pop() if dtypes else str(attrs.get("dtype", "float"))
        return self._node(op, tuple(args), tuple(sorted(signature.attrs.items())), TensorType(dtype, signature.result))

    def _node(self, op: str, args: tuple[Value, ...], attrs: Attrs, type_: TensorType) -> Value:
        if commutative(self.spec.operators[op]):
            args = tuple(sorted(args, key=lambda arg: (arg.node.uid, arg.index)))  # one order, so that a + b is b + a
        constant = all(arg.node.constant for arg in args)
        key = (op, args, attrs, type_)
        return Value(self._intern(key, op=op, args=args, attrs=attrs, types=(type_,), constant=constant))

    def build(
        self,
        term: s.Term,
        tensors: Mapping[str, Value],
        attrs: Mapping[str, Any],
        dtype: str,
        *,
        result: Shape | None = None,
    ) -> Value:
        """The value of a term. Macros are expanded; numbers become constants of `dtype`.

        Raises ShapeError where the term does not fit the tensors.
        """
        shapes: dict[str, Shape] = {}
        for name, value in tensors.items():
            if value.shape is not None:
                shapes[name] = value.shape
        typed = elaborate(term, self.spec, shapes, attrs, result=result)
        return self._place(typed, tensors, dtype, {})

    def _place(self, typed: Typed, tensors: Mapping[str, Value], dtype: str, memo: dict[Typed, Value]) -> Value:
        if typed not in memo:
            memo[typed] = self._placed(typed, tensors, dtype, memo)
        return memo[typed]

    def _placed(self, typed: Typed, tensors: Mapping[str, Value], dtype: str, memo: dict[Typed, Value]) -> Value:
        if typed.kind == "var":
            return tensors[typed.head]
        if typed.kind == "literal":
            assert typed.body is not None
            return self.filled(evaluate(real_division(typed.body), Scope(dict(typed.attrs))), typed.shape, dtype)
        args = [self._place(arg, tensors, dtype, memo) for arg in typed.args]
        if not args:
            if not all(isinstance(size, int) for size in typed.shape):
                raise ShapeError(f"{typed.head}: a constant of the free shape {typed.shape} cannot be stored")
            return self._node(typed.head, (), typed.attrs, TensorType(dtype, typed.shape))
        return self.apply(typed.head, args, dict(typed.attrs))

    def filled(self, number: Any, shape: Shape, dtype: str) -> Value:
        """The constant tensor of a shape that holds one number everywhere."""
        scalar = self.constant(np.asarray(float(number), dtype=numpy_dtype(dtype)), dtype)
        return scalar if shape == () else self.stretch(scalar, shape)

    def stretch(self, scalar: Value, shape: Shape) -> Value:
        """A scalar repeated over a shape, by the operator that the specification has for it (`Spec.stretching`)."""
        name, attrs = self.spec.stretching(shape)
        return self.apply(name, (scalar,), attrs)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an ONNX float element type. Raises ShapeError for others: arithmetic is only done in floats."""
    names = {"float": "float32", "double": "float64", "float16": "float16"}
    if dtype not in names:
        raise ShapeError(f"no arithmetic constants of type {dtype or 'unknown'}")
    return np.dtype(names[dtype])


@dataclass(frozen=True)
class Graph:
    """The outputs of a computation, in order, and the inputs it may read (also unused ones)."""

    outputs: tuple[Value, ...]
    inputs: tuple[Value, ...]

    def nodes(self) -> list[Node]:
        """All nodes that the outputs depend on, arguments first; deterministic. Graphs may be 10,000 nodes deep."""
        return topological(self.outputs)

    def users(self) -> dict[Value, list[Node]]:
        """For each value the nodes that read it."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes():
            for arg in dict.fromkeys(node.args):
                found.setdefault(arg, []).append(node)
        return found

    def replace(self, changes: Mapping[Value, Value], arena: Arena) -> Graph | None:
        """This graph with values replaced, or None if a replacement would depend on itself.

        Everything above a replaced value is rebuilt; shapes are kept, so nothing is inferred again.
        """
        done: dict[Node, Node] = {}

        def fix(value: Value) -> Value:
            seen = 0
            while value in changes:
                value = changes[value]
                seen += 1
                if seen > len(changes):
                    raise RecursionError
            return Value(done.get(value.node, value.node), value.index)

        try:
            order = _order_with(self.outputs, changes)
        except RecursionError:
            return None
        for node in order:
            args = tuple(fix(arg) for arg in node.args)
            if args != node.args:
                done[node] = with_args(node, args, arena)
        try:
            changed = Graph(tuple(fix(output) for output in self.outputs), self.inputs)
        except RecursionError:
            return None
        for node, rebuilt in done.items():
            for index in range(len(node.types)):
                arena.equal.setdefault(Value(rebuilt, index), Value(node, index))
        for old in changes:
            arena.equal.setdefault(fix(old), old)
        return changed


def with_args(node: Node, args: tuple[Value, ...], arena: Arena) -> Node:
    """The node that does the same to other arguments, of the same types as the old ones: nothing is inferred again."""
    if node.op == OPAQUE:
        return arena.opaque(node.payload, node.payload.key, args, node.types, constant=node.constant)
    return arena._node(node.op, args, node.attrs, node.types[0]).node


def topological(roots: Iterable[Value]) -> list[Node]:
    """The nodes that values depend on, arguments first."""
    return list(_walk([root.node for root in roots], lambda node: [arg.node for arg in node.args]))


def _order_with(roots: Iterable[Value], changes: Mapping[Value, Value]) -> list[Node]:
    """As `topological`, following replacements; RecursionError if they form a cycle."""

    def target(value: Value) -> Node:
        steps = 0
        while value in changes:
            value, steps = changes[value], steps + 1
            if steps > len(changes):
                raise RecursionError
        return value.node

    return list(_walk([target(root) for root in roots], lambda node: [target(arg) for arg in node.args], cycles=True))


def _walk(roots: Sequence[Node], children: Callable[[Node], list[Node]], cycles: bool = False) -> Iterator[Node]:
    done: set[Node] = set()
    active: set[Node] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, left = stack.pop()
            if left:
                active.discard(node)
                done.add(node)
                yield node
            elif node not in done:
                if node in active:
                    if cycles:
                        raise RecursionError
                    continue
                active.add(node)
                stack.append((node, True))
                for child in reversed(children(node)):
                    if child in active and cycles:
                        raise RecursionError
                    if child not in done:
                        stack.append((child, False))


def size_of(shape: Shape) -> Quantity:
    """How many elements a shape has."""
    total: Quantity = 1
    for extent in shape:
        total = total * extent
    return total
