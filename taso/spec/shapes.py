"""Signatures: from argument shapes and attributes to the result's shape, and back where a shape is asked for.

A signature is solved by binding names, not by guessing: a bare name takes what it meets, a product with one unknown
factor divides, everything else must agree. What "agree" and "divide" mean is left to a `Theory`: exact for concrete
and opaque symbolic sizes, unification in the prover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from taso.algebra.poly import Quantity, exact_quotient
from taso.errors import ShapeError, SpecError
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, UnboundName, attribute, dims, evaluate, holds
from taso.spec.value import Shape, Value

Declared = s.Operator | s.Macro


class Theory:
    """What sizes may be taken to be equal. This one: only those that are."""

    def equate(self, left: Quantity, right: Quantity, what: str) -> None:
        """Make two sizes equal or raise ShapeError."""
        if left != right:
            raise ShapeError(f"{what}: {left} is not {right}")

    def quotient(self, whole: Quantity, factor: Quantity, what: str) -> Quantity:
        """The size that times `factor` is `whole`, or raise ShapeError."""
        result = exact_quotient(whole, factor)
        if result is None:
            raise ShapeError(f"{what}: {whole} is not divisible by {factor}")
        return result

    def require(self, condition: s.Expr, scope: Scope, what: str) -> None:
        """Accept a requirement of an operator or raise ShapeError; an open one is refused."""
        truth = holds(condition, scope)
        if truth is not True:
            raise ShapeError(f"{what}: a requirement {'is not met' if truth is False else 'cannot be decided'}")


EXACT = Theory()


@dataclass(frozen=True)
class Signature:
    """A solved application: all names of the declaration bound, attributes complete, the result's shape."""

    scope: Scope
    attrs: dict[str, Value]
    result: Shape | None


def solve(
    declared: Declared,
    shapes: Sequence[Shape | None],
    attrs: Mapping[str, Value],
    *,
    result: Shape | None = None,
    theory: Theory = EXACT,
    partial: bool = False,
) -> Signature:
    """Bind the names of a declaration.

    Args:
        shapes: one per parameter; None where it is not known yet (only with `partial`).
        attrs: the attributes that are given; missing ones take their defaults.
        result: the result's shape, if the place asks for one; needed where an attribute of type `shape` is left out.
        partial: bind what can be bound and leave the rest; the result's shape may then be None.

    Raises:
        ShapeError: the shapes or attributes do not fit.
    """
    if theory is EXACT:
        try:
            given = tuple((attr, value, type(value)) for attr, value in attrs.items())  # 1 is not True here
            known = _solved(declared, tuple(shapes), given, result, partial)
        except TypeError:  # an attribute that cannot be a key
            return _solve(declared, shapes, attrs, result, theory, partial)
        scope = Scope(dict(known.scope.values), known.scope.shapes)  # callers bind further names
        return Signature(scope, dict(known.attrs), known.result)
    return _solve(declared, shapes, attrs, result, theory, partial)


@lru_cache(maxsize=1 << 16)
def _solved(
    declared: Declared,
    shapes: tuple[Shape | None, ...],
    attrs: tuple[tuple[str, Value, type], ...],
    result: Shape | None,
    partial: bool,
) -> Signature:
    """A search asks for the same few signatures again and again."""
    return _solve(declared, shapes, {attr: value for attr, value, _ in attrs}, result, EXACT, partial)


def _solve(
    declared: Declared,
    shapes: Sequence[Shape | None],
    attrs: Mapping[str, Value],
    result: Shape | None,
    theory: Theory,
    partial: bool,
) -> Signature:
    name = declared.name
    if len(shapes) != len(declared.params):
        raise ShapeError(f"{name} takes {len(declared.params)} tensors, not {len(shapes)}")
    unknown = attrs.keys() - {attr.name for attr in declared.attrs}
    if unknown:
        raise ShapeError(f"{name} has no attribute {', '.join(sorted(unknown))}")
    scope = Scope(
        _given(declared, attrs), {p.name: shape for p, shape in zip(declared.params, shapes) if shape is not None}
    )
    facts = [
        (p.dims, shape, f"{name}, tensor {p.name}") for p, shape in zip(declared.params, shapes) if shape is not None
    ]
    if result is not None and isinstance(declared, s.Operator):
        facts.append((declared.result, result, f"{name}, result"))
    _normalize_axes(declared, scope)
    open_ = facts
    while open_:  # as long as a pass binds something, what was open may be closed
        before = len(scope.values), len(open_)
        open_ = [fact for fact in open_ if not _match(*fact, scope, theory)]
        _normalize_axes(declared, scope)
        if (len(scope.values), len(open_)) == before:
            break
    if not partial:
        for items, _, what in open_:
            if items is not getattr(declared, "result", None):
                raise ShapeError(f"{what}: its shape does not say all of its sizes")
    return _finish(declared, scope, theory, partial)


def _given(declared: Declared, attrs: Mapping[str, Value]) -> dict[str, Value]:
    values = dict(attrs)
    for attr in declared.attrs:
        if attr.name not in values and attr.default is not None:
            try:
                values[attr.name] = attribute(attr.type, attr.default, Scope(values))
            except UnboundName:
                continue  # a default that depends on sizes; tried again at the end
    return values


def _normalize_axes(declared: Declared, scope: Scope) -> None:
    """Negative axes count from the end of the list named in `axis(s)`, else of the first tensor."""
    for attr in declared.attrs:
        value = scope.values.get(attr.name)
        if attr.type not in ("axis", "axes", "perm") or value is None:
            continue
        if attr.like is not None:
            listed = scope.values.get(attr.like)
            rank = len(listed) if isinstance(listed, tuple) else None
        else:
            rank = len(scope.shapes[declared.params[0].name]) if declared.params[0].name in scope.shapes else None
        listed_axes = value if isinstance(value, tuple) else (value,)
        if rank is None or not all(isinstance(axis, int) for axis in listed_axes):
            continue
        if any(not -rank <= axis < rank for axis in listed_axes):
            raise ShapeError(f"{declared.name}: {attr.name} {value} is out of range for rank {rank}")
        normal = tuple(axis % rank for axis in listed_axes)
        if len(set(normal)) < len(normal) or (attr.type == "perm" and len(normal) != rank):
            wrong = "is no permutation" if attr.type == "perm" else "has an axis twice"
            raise ShapeError(f"{declared.name}: {attr.name} {value} {wrong}")
        scope.values[attr.name] = normal if isinstance(value, tuple) else normal[0]


def _match(items: tuple[s.DimItem, ...], shape: Shape, what: str, scope: Scope, theory: Theory) -> bool:
    """Match declared entries with a shape; True when all of it is settled."""
    lengths = _lengths(items, len(shape), what, scope)
    if lengths is None:
        return False
    done, start = True, 0
    for item, length in zip(items, lengths):
        part = shape[start : start + length] if item.starred else shape[start]
        start += length
        done = _settle(item, part, what, scope, theory) and done
    return done


def _lengths(items: tuple[s.DimItem, ...], rank: int, what: str, scope: Scope) -> list[int] | None:
    lengths: list[int | None] = []
    for item in items:
        length: int | None = None if item.starred else 1
        if item.starred:
            try:
                length = evaluate(item.length, scope) if item.length is not None else len(evaluate(item.value, scope))
            except (UnboundName, TypeError):
                length = None
        lengths.append(length)
    missing = lengths.count(None)
    rest = rank - sum(length for length in lengths if length is not None)
    if missing > 1:
        return None
    if rest < 0 or (missing == 0 and rest != 0):
        raise ShapeError(f"{what}: rank {rank} does not fit")
    return [rest if length is None else length for length in lengths]


def _settle(item: s.DimItem, part: Value, what: str, scope: Scope, theory: Theory) -> bool:
    expr = item.value
    if isinstance(expr, s.Name) and expr.id not in scope.values:
        scope.values[expr.id] = part
        return True
    try:
        value = evaluate(expr, scope)
    except UnboundName:
        return _divide(expr, part, what, scope, theory)
    if item.starred:
        value = value if isinstance(value, tuple) else (value,) * len(part)
        if len(value) != len(part):
            raise ShapeError(f"{what}: {len(part)} sizes where {len(value)} are expected")
        for a, b in zip(value, part):
            theory.equate(a, b, what)
    else:
        theory.equate(value, part, what)
    return True


def _divide(expr: s.Expr, part: Value, what: str, scope: Scope, theory: Theory) -> bool:
    """`group * c` with one of the two known: the other is the quotient."""
    if not (isinstance(expr, s.Bin) and expr.op == "*" and not isinstance(part, tuple)):
        return False
    for known, wanted in ((expr.left, expr.right), (expr.right, expr.left)):
        if isinstance(wanted, s.Name) and wanted.id not in scope.values:
            try:
                factor = evaluate(known, scope)
            except UnboundName:
                continue
            scope.values[wanted.id] = theory.quotient(part, factor, what)
            return True
    return False


def _finish(declared: Declared, scope: Scope, theory: Theory, partial: bool) -> Signature:
    attrs: dict[str, Value] = {}
    for attr in declared.attrs:
        if attr.name not in scope.values and attr.default is not None:
            try:
                scope.values[attr.name] = attribute(attr.type, attr.default, scope)
            except UnboundName:
                if not partial:
                    raise
        if attr.name not in scope.values:
            if partial:
                continue
            raise ShapeError(f"{declared.name}: attribute {attr.name} is missing")
        value = scope.values[attr.name]
        if attr.type == "ints" and attr.like is not None and attr.like in scope.values:
            value = _as_long_as(declared, attr, value, scope)
        scope.values[attr.name] = attrs[attr.name] = value
    if isinstance(declared, s.Macro):
        return Signature(scope, attrs, None)
    try:
        shape = dims(declared.result, scope)
    except UnboundName:
        if partial:
            return Signature(scope, attrs, None)
        raise
    if not partial:
        for condition in declared.requires:
            theory.require(condition, scope, declared.name)
    for extent in shape:
        if isinstance(extent, int) and extent < 0:
            raise ShapeError(f"{declared.name}: the result would have the shape {shape}")
    return Signature(scope, attrs, shape)


def _as_long_as(declared: Declared, attr: s.AttrDecl, value: Value, scope: Scope) -> tuple[Value, ...]:
    length = len(scope.values[attr.like or ""])
    if not isinstance(value, tuple):
        return (value,) * length
    if len(value) != length:
        raise ShapeError(f"{declared.name}: {attr.name} has {len(value)} entries where {length} are expected")
    return value


def expected(param: s.Param, scope: Scope) -> Shape | None:
    """The shape that a parameter must have, if the scope already says all of it."""
    try:
        return dims(param.dims, scope)
    except SpecError:
        return None


@cache
def structural(declared: Declared) -> frozenset[str]:
    """The attributes that a proof fixes (axes, permutations, truth values); the others are symbols."""
    return frozenset(attr.name for attr in declared.attrs if attr.type in ("axis", "axes", "perm", "bool"))
