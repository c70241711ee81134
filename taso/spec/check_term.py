"""Static check of terms: operators exist, take as many tensors, have these attributes, of the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from taso.errors import SpecError
from taso.spec import syntax as s
from taso.spec.check_expr import ANY, ExprChecker, Kind, Names, listing, suggestion
from taso.spec.shapes import Declared
from taso.spec.spec import Spec

_WANTED = {
    "int": "int",
    "axis": "int",
    "ints": "ints",
    "real": "real",
    "bool": "bool",
    "axes": "list",
    "perm": "list",
    "shape": "list",
}
_KINDS = {"int": "int", "axis": "int", "real": "real", "bool": "bool"}


@dataclass(frozen=True)
class Place:
    """Where a term stands: what it may name, whether it may branch, and which names are any number of tensors."""

    names: Names
    choose: bool = False
    variadic: frozenset[str] = field(default_factory=frozenset)


class TermChecker(ExprChecker):
    """Collects what is wrong with terms and the expressions in them."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def term(self, term: s.Term, place: Place) -> None:
        """Check a term and all terms in it."""
        match term:
            case s.Var(name, pos):
                if name in place.variadic:
                    self.problem(f"`{name}` is any number of tensors; `fold` makes one of them", pos)
                elif name not in place.names.tensors:
                    hint = suggestion(name, place.names.tensors)
                    self.problem(
                        f"no tensor is called `{name}`", pos, hint, f"tensors here are {listing(place.names.tensors)}"
                    )
            case s.Literal(value):
                self.want(value, place.names, "real", "a number is expected where a tensor is")
            case s.Apply(op, args, attrs, pos):
                declared = self._declared(op, pos)
                if declared is not None and len(args) != len(declared.params):
                    self.problem(
                        f"`{op}` takes {len(declared.params)} tensors, not {len(args)}", pos, _written(declared)
                    )
                self._attributes(declared, attrs, place.names, pos)
                for arg in args:
                    self.term(arg, place)
            case s.Choose(condition, then, otherwise, pos):
                if not place.choose:
                    self.problem("`if` between tensors stands only in macros and imports", pos)
                self.want(condition, place.names, "bool", "a condition is expected here")
                self.term(then, place)
                self.term(otherwise, place)
            case s.Fold():
                self._fold(term, place)

    def _fold(self, fold: s.Fold, place: Place) -> None:
        declared = self._declared(fold.op, fold.pos)
        if fold.over not in place.variadic:
            hint = f"inputs of any number are {listing(place.variadic)}"
            self.problem(
                f"`{fold.over}` is not any number of tensors, so that nothing can be folded over it", fold.pos, hint
            )
        if declared is not None and len(declared.params) != 2:
            self.problem(f"`fold` takes an operator of two tensors; `{fold.op}` takes {len(declared.params)}", fold.pos)
        self._attributes(declared, fold.attrs, place.names, fold.pos)

    def _declared(self, op: str, pos: s.Pos) -> Declared | None:
        try:
            return self.spec.declared(op, pos)
        except SpecError as error:
            self.problems.append(error)
            return None

    def _attributes(
        self, declared: Declared | None, attrs: tuple[tuple[str, s.Expr], ...], names: Names, pos: s.Pos
    ) -> None:
        known = {attr.name: attr for attr in declared.attrs} if declared is not None else {}
        written: set[str] = set()
        for name, expr in attrs:
            if name in written:
                self.problem(f"attribute `{name}` is written twice", expr.pos)
            written.add(name)
            if declared is None:
                self.kind(expr, names)
            elif name not in known:
                hint = suggestion(name, known) or f"it has {listing(known)}"
                self.problem(f"`{declared.name}` has no attribute `{name}`", expr.pos, hint)
                self.kind(expr, names)
            else:
                kind = known[name].type
                self.want(expr, names, _WANTED[kind], f"attribute `{name}` of `{declared.name}` is of type {kind}")
        for attr in known.values():
            if attr.name not in written and attr.default is None and attr.type != "shape" and declared is not None:
                self.problem(f"`{declared.name}` needs the attribute `{attr.name}`", pos, _written(declared))

    def variables(self, term: s.Term) -> dict[str, Kind]:
        """The names that a pattern binds: those that stand alone as an attribute."""
        found: dict[str, Kind] = {}
        for apply in applications(term):
            declared = self.spec.operators.get(apply.op) or self.spec.macros.get(apply.op)
            types = {attr.name: attr.type for attr in declared.attrs} if declared is not None else {}
            for name, expr in apply.attrs:
                if isinstance(expr, s.Name) and expr.id not in ("true", "false"):
                    kind = Kind(_KINDS.get(types.get(name, ""), "list")) if name in types else ANY
                    found.setdefault(expr.id, ANY if types.get(name) == "ints" else kind)
        return found


def _written(declared: Declared) -> str:
    """How an application is written, for hints."""
    tensors = ", ".join(param.name for param in declared.params)
    attrs = "; " + ", ".join(f"{attr.name} = ..." for attr in declared.attrs) if declared.attrs else ""
    return f"it is written `{declared.name}({tensors}{attrs})`"


def applications(term: s.Term) -> Iterator[s.Apply]:
    """All applications in a term, outermost first."""
    if isinstance(term, s.Apply):
        yield term
        for arg in term.args:
            yield from applications(arg)
    elif isinstance(term, s.Choose):
        yield from applications(term.then)
        yield from applications(term.otherwise)


def tensors_of(term: s.Term) -> list[str]:
    """The tensors that a term names, in order, each once."""
    if isinstance(term, s.Var):
        return [term.name]
    parts = (
        term.args if isinstance(term, s.Apply) else (term.then, term.otherwise) if isinstance(term, s.Choose) else ()
    )
    return list(dict.fromkeys(name for part in parts for name in tensors_of(part)))
