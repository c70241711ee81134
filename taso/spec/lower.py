"""From a declaration to array code: what an operator computes, for whole batches, in NumPy or CuPy.

An operator is compiled once per (shapes, attributes) into a `Plan`. The indices of the result and of every `sum` or
`max` are the axes of one grid; index expressions become integer arrays over the axes that they depend on, reads
become gathers, and a sum of products of reads becomes one batched matrix product. Everything is exact in float64
while the values are integers below 2^53.

Data arrays have leading batch axes in front of the grid; each may have size 1 and then repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from taso.errors import SpecError
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.evaluate import Scope
from taso.spec.plan import Plan, compile_plan, concrete
from taso.spec.shapes import solve
from taso.spec.spec import Spec
from taso.spec.value import Value

Array = Any  # np.ndarray or cupy.ndarray

_CACHED_BYTES = 1 << 26  # a plan whose index tables are larger than this is built again each time
_plans: dict[tuple[Any, ...], tuple[s.Operator, Plan]] = {}


def run(
    op: s.Operator,
    args: Sequence[Array],
    attrs: Mapping[str, Value],
    spec: Spec | None = None,
    *,
    result_shape: Sequence[int] | None = None,
    batched: bool | int = False,
    xp: ModuleType = np,
) -> Array:
    """What an operator computes.

    Args:
        args: one array per parameter, each with `batched` leading batch axes (True: one). Batch axes have one size in
            all of them, or 1.
        attrs: attributes by name; missing ones take their defaults.
        result_shape: the result's shape without batch axes, where an attribute of type `shape` is left out.
        xp: numpy or cupy; the arrays' own module.

    Returns:
        An array with the batch axes and the result's shape, of the arguments' common dtype (float64 if there are none).

    Raises:
        ShapeError: shapes or attributes do not fit.
        SpecError: the meaning reads outside a tensor.
    """
    lead = int(batched)
    shapes = [tuple(int(n) for n in arg.shape[lead:]) for arg in args]
    plan = plan_for(op, shapes, attrs, result_shape)
    dtype = xp.result_type(*args) if args else np.dtype(np.float64)
    return plan.run(list(args), lead, dtype, xp)


def plan_for(
    op: s.Operator,
    shapes: Sequence[Sequence[int]],
    attrs: Mapping[str, Value],
    result_shape: Sequence[int] | None = None,
) -> Plan:
    """The compiled operator for argument shapes (without batch axes); cached."""
    asked = None if result_shape is None else tuple(result_shape)
    key = (id(op), tuple(map(tuple, shapes)), tuple(sorted(attrs.items())), asked)
    found = _plans.get(key)
    if found is not None:
        return found[1]
    signature = solve(op, [tuple(shape) for shape in shapes], attrs, result=asked)
    assert signature.result is not None
    plan = compile_plan(op, signature.scope, concrete(signature.result))
    if plan.nbytes < _CACHED_BYTES:
        if len(_plans) > 4096:
            _plans.clear()
        _plans[key] = op, plan  # the operator is kept so that its id stays its own
    return plan


def run_term(
    term: s.Term,
    spec: Spec,
    tensors: Mapping[str, Array],
    attrs: Mapping[str, Value] | None = None,
    *,
    result_shape: Sequence[int] | None = None,
    xp: ModuleType = np,
    batched: bool | int = False,
) -> Array:
    """What a term computes; shapes that are left out are inferred, macros are expanded, equal subterms computed once.

    Arguments, result and errors are as for `run` and `elaborate`.
    """
    lead = int(batched)
    shapes = {name: tuple(int(n) for n in tensor.shape[lead:]) for name, tensor in tensors.items()}
    asked = None if result_shape is None else tuple(result_shape)
    typed = elaborate(term, spec, shapes, attrs, result=asked)
    return run_typed(typed, spec, tensors, xp=xp, batched=batched)


def run_typed(
    typed: Typed, spec: Spec, tensors: Mapping[str, Array], *, xp: ModuleType = np, batched: bool | int = False
) -> Array:
    """What a typed tree (without macros) computes; arguments, result and errors are as for `run`."""
    lead = int(batched)
    dtype = xp.result_type(*tensors.values()) if tensors else np.dtype(np.float64)
    done: dict[Typed, Array] = {}

    def value(node: Typed) -> Array:
        if node not in done:
            done[node] = compute(node)
        return done[node]

    def compute(node: Typed) -> Array:
        if node.kind == "var":
            if node.head not in tensors:
                raise SpecError(f"no tensor is called `{node.head}`")
            return tensors[node.head]
        if node.kind == "literal":
            assert node.body is not None
            number = s.Operator("number", (), (), result=(), requires=(), index=(), body=node.body)
            return compile_plan(number, Scope(node.attr), concrete(node.shape)).run([], lead, dtype, xp)
        operator = spec.operators.get(node.head)
        if operator is None:
            raise SpecError(f"`{node.head}` is not an operator; expand macros first")
        args = [value(arg) for arg in node.args]
        plan = plan_for(operator, [concrete(arg.shape) for arg in node.args], node.attr)
        return plan.run(args, lead, xp.result_type(*args) if args else dtype, xp)

    return value(typed)
