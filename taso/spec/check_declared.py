"""Static check of operators and macros: sizes follow from shapes, indices from sizes; small examples are followed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from taso.algebra.poly import Quantity
from taso.errors import ShapeError, SpecError, TasoError
from taso.spec import syntax as s
from taso.spec.check_expr import (
    ANY,
    BOOL,
    INT,
    LIST,
    REAL,
    ExprChecker,
    Kind,
    Names,
    length_symbol,
    listing,
    suggestion,
)
from taso.spec.check_onnx import check_attributes, check_form
from taso.spec.check_term import Place, TermChecker
from taso.spec.elaborate import elaborate
from taso.spec.lower import run
from taso.spec.sample import draw, draw_tensor
from taso.spec.shapes import Declared
from taso.spec.spec import Spec

EXAMPLES = 12  # random applications of each operator whose shapes are followed

_ATTR_KINDS = {
    "int": INT,
    "ints": LIST,
    "real": REAL,
    "bool": BOOL,
    "axis": INT,
    "axes": LIST,
    "perm": LIST,
    "shape": LIST,
}


def _declared(check: TermChecker, declared: Declared) -> Names:
    """Check parameters, attributes and requirements; the names that they bind."""
    once(check, [(param.name, param.pos) for param in declared.params], "tensor")
    once(check, [(attr.name, attr.pos) for attr in declared.attrs], "attribute")
    values = {attr.name: _ATTR_KINDS[attr.type] for attr in declared.attrs}
    values |= _bind_dims(check, declared, values)
    for attr in declared.attrs:
        if attr.like is not None:
            _like(check, attr, values)
    for attr in declared.attrs:  # a permutation without a list of its own is as long as the first tensor
        if attr.type == "perm" and attr.like is None and declared.params:
            values[attr.name] = Kind("list", _rank(declared.params[0].dims, values))
        elif attr.type in ("axes", "shape"):
            values[attr.name] = Kind("list", length_symbol(attr.name))
    tensors = {param.name: _rank(param.dims, values) for param in declared.params}
    names = Names(values, tensors)
    for param in declared.params:
        for item in param.dims:
            _dim(check, item, names)
    for attr in declared.attrs:
        if attr.default is not None:
            wanted = {"int": "int", "axis": "int", "ints": "ints", "real": "real", "bool": "bool"}.get(
                attr.type, "list"
            )
            check.want(attr.default, names, wanted, f"the default of `{attr.name}` must be of type {attr.type}")
    for condition in declared.requires:
        check.want(condition, names, "bool", "a requirement is a condition")
    return names


def once(check: ExprChecker, names: Iterable[tuple[str, s.Pos]], what: str) -> None:
    """A name that comes twice is a problem."""
    seen: set[str] = set()
    for name, pos in names:
        if name in seen:
            check.problem(f"{what} `{name}` is declared twice", pos)
        seen.add(name)


def _like(check: ExprChecker, attr: s.AttrDecl, values: dict[str, Kind]) -> None:
    like = attr.like or ""
    if attr.type in ("int", "real", "bool", "shape"):
        check.problem(f"`{attr.type}` is one value or a shape of its own and takes no list in parentheses", attr.pos)
    elif values.get(like, INT).what != "list":
        lists = [name for name, kind in values.items() if kind.what == "list" and name != attr.name]
        hint = suggestion(like, lists) or f"lists are {listing(lists)}"
        check.problem(f"`{like}` is no list of sizes that `{attr.name}` could be as long as", attr.pos, hint)
    elif attr.type in ("ints", "perm"):
        values[attr.name] = values[like]


def _bind_dims(check: ExprChecker, declared: Declared, attrs: Mapping[str, Kind]) -> dict[str, Kind]:
    """The sizes that the parameters' shapes bind, as in `shapes.solve`; what nothing determines is a problem."""
    bound: dict[str, Kind] = {}
    items = [item for param in declared.params for item in param.dims]
    progress = True
    while progress:
        progress = False
        for item in items:
            name = _binds(item.value, {*attrs, *bound})
            if name is not None:
                bound[name] = Kind("list", length_symbol(name)) if item.starred else INT
                progress = True
    for item in items:
        for unknown in _names(item.value):
            if unknown.id not in attrs and unknown.id not in bound:
                hint = "a size is bound where it stands alone, or in a product with one known factor"
                check.problem(
                    f"the size `{unknown.id}` does not follow from the shapes of the tensors", unknown.pos, hint
                )
                bound[unknown.id] = ANY
    for param in declared.params:
        free = [item for item in param.dims if item.starred and item.length is None]
        if len(free) > 1 and all(isinstance(item.value, s.Name) and _first_use(item, declared) for item in free):
            check.problem(
                f"how the axes of `{param.name}` fall into its lists is not said",
                param.pos,
                "write a length behind one of them, as in `*p:axis`",
            )
    return bound


def _first_use(item: s.DimItem, declared: Declared) -> bool:
    """Whether nothing else says how long a list is."""
    name = item.value.id if isinstance(item.value, s.Name) else ""
    for param in declared.params:
        starred = [other for other in param.dims if other.starred]
        if any(o.value == item.value and (o.length is not None or len(starred) == 1) for o in starred):
            return False
    return all(attr.name != name for attr in declared.attrs)


def _binds(expr: s.Expr, known: set[str]) -> str | None:
    """The name that an entry of a shape binds: itself, or the unknown one of two factors."""
    if isinstance(expr, s.Name):
        return expr.id if expr.id not in known else None
    if isinstance(expr, s.Bin) and expr.op == "*":
        for wanted, other in ((expr.right, expr.left), (expr.left, expr.right)):
            if isinstance(wanted, s.Name) and wanted.id not in known and {n.id for n in _names(other)} <= known:
                return wanted.id
    return None


def _names(expr: object) -> list[s.Name]:
    if isinstance(expr, s.Name):
        return [expr]
    if isinstance(expr, s.Call) and expr.function in ("dim", "rank", "shape", "dtype"):
        return _names(expr.args[1:])
    if isinstance(expr, tuple):
        return [name for item in expr for name in _names(item)]
    fields = getattr(expr, "__dataclass_fields__", {})
    return [name for part in fields for name in _names(getattr(expr, part))]


def _dim(check: ExprChecker, item: s.DimItem, names: Names) -> Quantity | None:
    """Check an entry of a shape; how many axes it is."""
    if item.length is not None:
        check.want(item.length, names, "int", "the length of a list is a whole number")
    if not item.starred:
        check.want(item.value, names, "int", "a size is a whole number")
        return 1
    length = check.want(item.value, names, "list", "behind `*` a list of sizes is expected").length
    return length


def _rank(items: Sequence[s.DimItem], values: Mapping[str, Kind]) -> Quantity | None:
    total: Quantity | None = 0
    quiet = ExprChecker()
    for item in items:
        part = quiet.kind(item.value, Names(values)).length if item.starred else 1
        total = None if total is None or part is None else total + part
    return total


def check_operator(check: TermChecker, op: s.Operator) -> None:
    """Check an operator; problems are collected in `check`."""
    names = _declared(check, op)
    lengths = [_dim(check, item, names) for item in op.result]
    if op.identity is not None:
        check.want(op.identity, names, "bool", "`identity when` takes a condition")
        if not op.params:
            check.problem(f"`{op.name}` has no tensor that it could leave as it is", op.pos)
    indices = _indices(check, op, lengths)
    if indices is not None:
        element = Names(names.values, names.tensors, True).with_indices(indices)
        check.want(op.body, element, "real", "an element is a number")
    _mapping(check, op, names)
    if not check.problems:
        _examples(check, op)


def _indices(check: ExprChecker, op: s.Operator, lengths: list[Quantity | None]) -> dict[str, Kind] | None:
    """The index names on the left of `out[...] =`; they must be one to one with the entries of the result's shape."""
    if len(op.index) != len(op.result):
        pos = op.index[0].pos if op.index else op.pos
        check.problem(f"the result has {len(op.result)} entries but `out` has {len(op.index)} indices", pos)
        return None
    found: dict[str, Kind] = {}
    for index, size, length in zip(op.index, op.result, lengths):
        if not isinstance(index.value, s.Name):
            check.problem("an index of `out` is a name", index.pos)
            return None
        if index.starred != size.starred:
            check.problem(
                f"`{index.value.id}` must {'' if size.starred else 'not '}be starred, as the size at its place",
                index.pos,
            )
        if index.value.id in found:
            check.problem(f"index `{index.value.id}` is bound twice", index.pos)
        found[index.value.id] = Kind("list", length) if index.starred else INT
    return found


def check_macro(check: TermChecker, macro: s.Macro) -> None:
    """Check a macro; problems are collected in `check`."""
    names = _declared(check, macro)
    place = Place(names, choose=True)
    for term in (macro.body, *macro.forms):
        check.term(term, place)
    cycle = _cycle(check.spec, macro)
    if cycle:
        check.problem(f"`{macro.name}` is defined by itself: {' -> '.join(cycle)}", macro.pos)
    _mapping(check, macro, names)
    if not check.problems:
        _examples(check, macro)


def _cycle(spec: Spec, macro: s.Macro) -> list[str]:
    """A way from a macro through the macros in its definition back to itself."""
    stack, seen = [[macro.name]], set[str]()
    while stack:
        path = stack.pop()
        current = spec.macros.get(path[-1], macro)
        for op in sorted(_applied((current.body, *current.forms))):
            if op == macro.name:
                return [*path, op]
            if op in spec.macros and op not in seen:
                seen.add(op)
                stack.append([*path, op])
    return []


def _applied(term: object) -> set[str]:
    """The operators that a term applies."""
    if isinstance(term, tuple):
        return {op for one in term for op in _applied(one)}
    match term:
        case s.Apply(op, args):
            return {op} | _applied(args)
        case s.Choose(_, then, otherwise):
            return _applied((then, otherwise))
    return set()


def _mapping(check: TermChecker, declared: Declared, names: Names) -> None:
    """The `implicit` and `onnx` lines."""
    place = Place(names)
    if declared.implicit is not None:
        check.term(declared.implicit, place)
        if len(declared.params) != 1:
            check.problem(
                f"`{declared.name}` takes {len(declared.params)} tensors; only an operator of one can be implicit",
                declared.pos,
            )
    for form in declared.onnx:
        for arg in form.args:
            if isinstance(arg.value, (s.Var, s.Literal, s.Apply, s.Choose, s.Fold)):
                check.term(arg.value, place)
            elif arg.value is not None:
                wanted = "ints" if arg.kind == "ints" else "real"
                check.want(
                    arg.value,
                    names,
                    wanted,
                    f"`{arg.kind}` takes {'whole numbers' if wanted == 'ints' else 'a number'}",
                )
        if form.when is not None:
            check.want(form.when, names, "bool", "`when` takes a condition")
        if form.variadic and len(declared.params) != 2:
            check.problem("only an operator of two tensors has a variadic form", form.pos)
        kinds = check_attributes(check, form, names)
        if not check.problems:
            check_form(check, form, kinds)


def _examples(check: TermChecker, declared: Declared) -> None:
    """Follow the shapes of random applications: a definition that fits none is wrong, as is one that reads outside."""
    rng = random.Random(7)
    refusals: list[str] = []
    for _ in range(EXAMPLES):
        sample = draw(declared, rng, tries=60)
        if sample is None:
            refusals.append("no shapes and attributes were found that fit it")
            continue
        try:
            if isinstance(declared, s.Operator):
                tensors = [draw_tensor(shape, rng, "whole") for shape in sample.shapes]
                run(declared, tensors, sample.attrs, check.spec, result_shape=sample.result)
                return
            shapes = {param.name: shape for param, shape in zip(declared.params, sample.shapes)}
            attrs = tuple((attr.name, s.Name(attr.name)) for attr in declared.attrs)
            term = s.Apply(declared.name, tuple(s.Var(name) for name in shapes), attrs)
            elaborate(term, check.spec, shapes, sample.attrs)
            return
        except ShapeError as error:
            refusals.append(str(error))
        except SpecError as error:
            if isinstance(declared, s.Operator):
                check.problems.append(error)
                return
            refusals.append(error.problem)
        except TasoError as error:
            refusals.append(str(error))
    check.problem(f"`{declared.name}` fits no random shapes and attributes: {refusals[-1]}", declared.pos)
