"""Is a specification well formed? All problems at once, each with its place; nothing is run except small examples.

Names must be bound, shapes must follow from what is known, terms must fit the operators that they use, and what is said
about ONNX must agree with onnx's schemas. Whether an operator *means* what ONNX means is for `conform` to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from taso.algebra.poly import Quantity
from taso.errors import SpecError
from taso.spec import syntax as s
from taso.spec.check_declared import check_macro, check_operator, once
from taso.spec.check_expr import ANY, INT, LIST, REAL, ExprChecker, Kind, Names, listing
from taso.spec.check_onnx import check_import, check_role
from taso.spec.check_term import Place, TermChecker, tensors_of
from taso.spec.spec import Spec


def check_spec(spec: Spec) -> list[SpecError]:
    """All problems of a specification in the order of its files; an empty list if it is well formed."""
    found = [error for item in spec.items for error in check_item(item, spec)]
    order = {path: k for k, path in enumerate(spec.files)}
    return sorted(found, key=lambda error: (order.get(error.path, -1), error.line, error.column))


def check_item(item: s.Item, spec: Spec) -> list[SpecError]:
    """The problems of one declaration, with its file."""
    check = TermChecker(spec)
    try:
        match item:
            case s.Operator():
                check_operator(check, item)
            case s.Macro():
                check_macro(check, item)
            case s.Import():
                _import(check, item)
            case s.Content():
                _content(check, item)
            case s.Role():
                check_role(check, item)
            case s.Axiom():
                _axiom(check, item)
            case s.Universe():
                _universe(check, item)
    except SpecError as error:  # raised inside, where no file is known
        check.problems.append(error)
    path = spec.homes.get(id(item), "<text>")
    unique = {(error.line, error.column, error.problem): error for error in check.problems}
    return [error.placed(path, spec.files.get(path, "")) for error in unique.values()]


# --- imports and contents ------------------------------------------------------------------------------------------


def _node(check: ExprChecker, line: s.Import | s.Content) -> Names:
    """Check the inputs and attributes of a node that is read; the names that they bind."""
    once(check, [(param.name, param.pos) for param in line.params], "input")
    once(check, [(name, default.pos if default is not None else line.pos) for name, default in line.attrs], "attribute")
    values: dict[str, Kind] = {"output": INT, "outputs": INT}
    kinds = {"ints": LIST, "int": INT, "real": REAL, "reals": LIST}
    values |= {param.name: kinds[param.kind] for param in line.params if param.kind in kinds}
    reads = isinstance(line, s.Content)
    values |= {param.name: LIST for param in line.params if reads and param.kind == "variadic"}
    tensors = {
        param.name: None for param in line.params if param.kind == "tensor" or (param.kind == "variadic" and not reads)
    }
    for k, param in enumerate(line.params):
        if param.kind == "variadic" and k != len(line.params) - 1:
            check.problem("only the last input can be variadic", param.pos)
    for name, default in line.attrs:
        values[name] = check.kind(default, Names(values, tensors)) if default is not None else ANY
    names = Names(values, tensors)
    if line.when is not None:
        check.want(line.when, names, "bool", "`when` takes a condition")
    return names


def _import(check: TermChecker, line: s.Import) -> None:
    names = _node(check, line)
    variadic = {param.name for param in line.params if param.kind == "variadic"}
    check.term(line.body, Place(names, choose=True, variadic=frozenset(variadic)))
    if not check.problems:
        check_import(check, line)


def _content(check: TermChecker, line: s.Content) -> None:
    check.want(line.body, _node(check, line), "ints", "the content of a node is whole numbers")
    if not check.problems:
        check_import(check, line)


# --- axioms and universes ------------------------------------------------------------------------------------------


def _axiom(check: TermChecker, axiom: s.Axiom) -> None:
    check_equation(check, (axiom.left,), (axiom.right,), axiom.where, axiom.ranks, axiom.pos)


def check_equation(
    check: TermChecker,
    left: Sequence[s.Term],
    right: Sequence[s.Term],
    where: Sequence[s.Expr],
    ranks: s.Ranks | None,
    pos: s.Pos,
) -> None:
    """An axiom or a rule: bare names in attributes of the left side are variables; it must bind everything else."""
    tensors: dict[str, Quantity | None] = {name: None for term in left for name in tensors_of(term)}
    bound: dict[str, Kind] = {}
    for term in left:
        bound |= check.variables(term)
    names = Names(bound, tensors)
    for term in (*left, *right):
        check.term(term, Place(names))
    for condition in where:
        check.want(condition, names, "bool", "`where` takes conditions")
    for name in ranks.names if ranks is not None else ():
        if name not in tensors:
            check.problem(f"`ranks` names `{name}`, but the tensors of the left side are {listing(tensors)}", pos)


def _universe(check: TermChecker, universe: s.Universe) -> None:
    once(check, [(name, group.pos) for group in universe.inputs for name in group.names], "input")
    once(check, [(one.name, one.pos) for one in (*universe.constants, *universe.instances)], "instance")
    for group in universe.inputs:
        if any(size < 1 for size in group.shape):
            check.problem(f"an input has the shape {list(group.shape)}; sizes are at least 1", group.pos)
    for constant in universe.constants:
        check.term(constant.body, Place(Names()))
    for instance in universe.instances:
        once(check, [(name, instance.pos) for name in instance.params], "tensor")
        names = Names({}, {name: None for name in instance.params})
        if instance.when is not None:
            check.want(instance.when, names, "bool", "`when` takes a condition")
        check.term(instance.body, Place(names))
    for name, value in universe.options:
        check.kind(value, Names())
    once(check, [(name, value.pos) for name, value in universe.options], "option")
