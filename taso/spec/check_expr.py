"""Static check of expressions: names are bound, functions known and given what they take, lists where lists belong.

An expression has a kind (number, list, truth value, ...); a list also has a length where it is known, as a polynomial
in symbols such as `len s`. Nothing is evaluated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from taso.algebra.poly import Poly, Quantity, substitute, var
from taso.algebra.poly import names as poly_names
from taso.errors import SpecError, did_you_mean
from taso.spec import syntax as s
from taso.spec.builtins import BUILTINS
from taso.spec.functions import FUNCTIONS


@dataclass(frozen=True)
class Kind:
    """`what` is int, real, list, bool, str or any (not known); `length` is a list's, None where it is not known."""

    what: str
    length: Quantity | None = None

    def __str__(self) -> str:
        return {
            "int": "a whole number",
            "real": "a number",
            "list": "a list",
            "bool": "a condition",
            "str": "a string",
        }.get(self.what, "anything")


INT, REAL, BOOL, STR, ANY = Kind("int"), Kind("real"), Kind("bool"), Kind("str"), Kind("any")
NUMBERS = ("int", "real", "any")
LIST = Kind("list")


@dataclass(frozen=True)
class Names:
    """What may be spoken of at a place.

    values:  names with their kinds. tensors: names of tensors with their ranks (None: not known).
    element: whether tensors may be read here (`x[i]`), which is also where `/` divides reals and exp, tanh, ... exist.
    indices: those of the names that are indices.
    """

    values: Mapping[str, Kind] = field(default_factory=dict)
    tensors: Mapping[str, Quantity | None] = field(default_factory=dict)
    element: bool = False
    indices: tuple[str, ...] = ()

    def with_indices(self, more: Mapping[str, Kind]) -> Names:
        kept = tuple(name for name in self.indices if name not in more)
        return replace(self, values={**self.values, **more}, indices=kept + tuple(more))

    def as_index(self) -> Names:
        return replace(self, element=False)


_LISTS = (
    "range select drop replace merge inverse reverse sorted unravel take skip fill numpy_shape stretched onnx_reshape "
    "resolve same_before same_after flatten scaled extra_ones"
)
_RESULTS: Mapping[str, Kind] = {
    **dict.fromkeys(("len", "ravel", "slice_start", "slice_stop", "ceil_div"), INT),
    **dict.fromkeys(("real", "sqrt"), REAL),
    **dict.fromkeys(_LISTS.split(), LIST),
    "known": BOOL,
}

# What the arguments of a function must be: l list, n number, s string, . anything.
_SIGNATURES = (
    "len l, select ll, drop ll, replace lln, merge lll, inverse l, reverse l, sorted l, ravel ll, unravel nl, "
    "product l, take ln, skip ln, at ln, fill n., normalize .n, stretched ll, onnx_reshape ll, slice_start nn, "
    "slice_stop nnn, resolve lln, real n, sqrt n, ceil_div nn, same_before sllll, same_after sllll, "
    "flatten l, scaled ll, extra_ones ll"
)
_ARGUMENTS: Mapping[str, str] = dict(entry.split(" ", 1) for entry in _SIGNATURES.split(", "))


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint with the closest known name, or nothing."""
    return did_you_mean(name, known, "did you mean `{}`?")


def listing(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(names) or "none"


class ExprChecker:
    """Collects what is wrong with expressions in `problems`."""

    def __init__(self) -> None:
        self.problems: list[SpecError] = []
        self.shadowing: list[tuple[str, s.Binder]] = []  # ranges around whose index hides a size, as in `sum(k < k)`
        self.lengths: dict[str, Quantity] = {}  # what symbols for lengths have turned out to be

    def problem(self, message: str, pos: s.Pos, hint: str = "", note: str = "") -> None:
        """Note a problem at a place; see SpecError."""
        self.problems.append(SpecError(message, line=pos.line, column=pos.column, hint=hint, note=note))

    def want(self, expr: s.Expr, names: Names, what: str, message: str) -> Kind:
        """Check an expression that must be of a kind: one of int, real, list, bool, str or `number or list`."""
        kind = self.kind(expr, names)
        fits = {
            "int": kind.what in ("int", "any"),
            "real": kind.what in NUMBERS,
            "list": kind.what in ("list", "any"),
            "bool": kind.what in ("bool", "any"),
            "str": kind.what in ("str", "any"),
            "ints": kind.what in ("int", "list", "any"),
        }[what]
        if not fits:
            self.problem(f"{message}, not {kind}", position(expr))
        return kind

    def kind(self, expr: s.Expr, names: Names) -> Kind:
        """Check an expression and say what it is."""
        match expr:
            case s.Num(value):
                return INT if not isinstance(value, float) and value.denominator == 1 else REAL
            case s.Str():
                return STR
            case s.Name(name, pos):
                return self._name(name, pos, names)
            case s.Neg(inner):
                return self._number_or_list(self.kind(inner, names), position(inner))
            case s.Bin(op, left, right, pos):
                return self._binary(op, self.kind(left, names), self.kind(right, names), pos)
            case s.Cmp(op, left, right, pos):
                return self._comparison(op, self.kind(left, names), self.kind(right, names), pos)
            case s.Logic(_, operands):
                for operand in operands:
                    self.want(operand, names, "bool", "a condition is expected here")
                return BOOL
            case s.If(condition, then, otherwise):
                self.want(condition, names, "bool", "a condition is expected here")
                return _either(self.kind(then, names), self.kind(otherwise, names))
            case s.ListOf(items):
                return Kind("list", self.length(items, names))
            case s.Star(inner, pos):
                self.problem("`*` may only stand inside a list, a shape or an index", pos)
                self.kind(inner, names)
                return ANY
            case s.Call(function, args, pos):
                return self._call(function, args, pos, names)
            case s.Read():
                return self._read(expr, names)
            case s.Reduce():
                return self._reduce(expr, names)
        raise AssertionError(expr)

    def length(self, items: Iterable[s.Expr], names: Names) -> Quantity | None:
        """Check the entries of a list, shape or index; its length where that is known."""
        total: Quantity | None = 0
        for item in items:
            if isinstance(item, s.Star):
                part = self.want(item.value, names, "list", "behind `*` a list is expected").length
            else:
                kind = self.kind(item, names)
                part = 1
                if kind.what == "list" and not isinstance(item, s.ListOf):
                    self.problem("this is a list; its entries are put in place with `*` in front of it", position(item))
            total = None if total is None or part is None else total + part
        return total

    def _name(self, name: str, pos: s.Pos, names: Names) -> Kind:
        if name in names.values:
            return names.values[name]
        if name in ("true", "false"):
            return BOOL
        if name in names.tensors:
            self.problem(
                f"`{name}` is a tensor, not a number", pos, f"its sizes are `shape({name})` and `dim({name}, axis)`"
            )
        else:
            self._unbound(name, pos, names)
        return ANY

    def _unbound(self, name: str, pos: s.Pos, names: Names) -> None:
        hint = suggestion(name, names.values) if len(name) > 1 else ""
        for kind, binder in self.shadowing:
            if isinstance(binder.bound, s.Name):
                star = "*" if binder.starred else ""
                hint = f"did you mean to write `{kind}({star}{name} < {binder.bound.id})`?"
        word, bound = ("index ", names.indices) if names.indices else ("", tuple(names.values))
        self.problem(f"{word}`{name}` is not bound", pos, hint, f"bound here are {listing(bound)}")

    def _number_or_list(self, kind: Kind, pos: s.Pos) -> Kind:
        if kind.what in ("bool", "str"):
            self.problem(f"a number is expected here, not {kind}", pos)
            return ANY
        return kind

    def _binary(self, op: str, left: Kind, right: Kind, pos: s.Pos) -> Kind:
        if op == "++":
            if not {left.what, right.what} <= {"list", "any"}:
                self.problem("`++` joins two lists", pos)
            return Kind("list", None if left.length is None or right.length is None else left.length + right.length)
        left, right = self._number_or_list(left, pos), self._number_or_list(right, pos)
        a, b = left.length, right.length
        if a is not None and b is not None and not self._agree(a, b):
            self.problem(f"lists of lengths {a} and {b} in one operation", pos)
        if "list" in (left.what, right.what):
            known = [kind.length for kind in (left, right) if kind.length is not None]
            return Kind("list", known[0] if known else None)
        if "any" in (left.what, right.what):
            return ANY
        return REAL if "real" in (left.what, right.what) else INT

    def _comparison(self, op: str, left: Kind, right: Kind, pos: s.Pos) -> Kind:
        if op == "==" and left.length is not None and right.length is not None:
            self._agree(left.length, right.length)
        if op == "in":
            if right.what not in ("list", "any"):
                self.problem(f"behind `in` a list is expected, not {right}", pos)
        elif "any" not in (left.what, right.what) and ("str" in (left.what, right.what)) and left.what != right.what:
            self.problem(f"{left} is compared with {right}", pos)
        elif op not in ("==", "!=") and {"bool", "str"} & {left.what, right.what}:
            self.problem(f"`{op}` compares numbers or lists, not {left} and {right}", pos)
        return BOOL

    def _agree(self, left: Quantity, right: Quantity) -> bool:
        """Whether two lengths can be equal; a symbol that must then be something is that from here on."""
        left, right = substitute(left, self.lengths), substitute(right, self.lengths)
        for one, other in ((left, right), (right, left)):
            symbol = one.terms if isinstance(one, Poly) else {}
            if (
                left != right
                and len(symbol) == 1
                and one == var(next(iter(symbol))[0])
                and str(one) not in poly_names(other)
            ):
                self.lengths = {name: substitute(value, {str(one): other}) for name, value in self.lengths.items()} | {
                    str(one): other
                }
                return True
        return left == right

    # --- functions and tensors
    def _call(self, function: str, args: tuple[s.Expr, ...], pos: s.Pos, names: Names) -> Kind:
        if function in ("dim", "rank", "shape", "dtype"):
            return self._about_tensor(function, args, pos, names)
        elementary = function in FUNCTIONS and names.element
        if not elementary and function not in BUILTINS:
            known = sorted({*BUILTINS, "dim", "rank", "shape", "dtype", *(FUNCTIONS if names.element else ())})
            hint = suggestion(function, known) or f"known are {listing(known)}"
            if function in FUNCTIONS:
                hint = "functions of elements exist only where tensors are read"
            self.problem(f"unknown function `{function}`", pos, hint)
            for arg in args:
                self.kind(arg.value if isinstance(arg, s.Star) else arg, names)
            return ANY
        kinds = [self.kind(arg.value, names) if isinstance(arg, s.Star) else self.kind(arg, names) for arg in args]
        if any(isinstance(arg, s.Star) for arg in args):
            return _RESULTS.get(function, ANY)
        if not any(_takes(f, len(args)) for f in _functions(function, elementary)):
            self.problem(
                f"`{function}` cannot take {len(args)} argument{'s' * (len(args) != 1)}", pos, _usage(function)
            )
            return _RESULTS.get(function, ANY)
        return self._builtin(function, args, kinds, pos)

    def _builtin(self, function: str, args: tuple[s.Expr, ...], kinds: list[Kind], pos: s.Pos) -> Kind:
        for wanted, kind, arg in zip(_ARGUMENTS.get(function, ""), kinds, args):
            fits = {"l": ("list", "any"), "n": NUMBERS, "s": ("str", "any"), ".": (kind.what,)}[wanted]
            if kind.what not in fits:
                name = {"l": "a list", "n": "a number", "s": "a string"}[wanted]
                self.problem(f"`{function}` takes {name} here, not {kind}", position(arg))
        lengths = [kind.length for kind in kinds]
        match function:
            case "product" | "sum" | "at":
                return ANY
            case "select" if lengths[1] is not None:
                return Kind("list", lengths[1])
            case "inverse" | "reverse" | "sorted" | "replace":
                return Kind("list", lengths[0])
            case "unravel":
                return Kind("list", lengths[1])
            case "drop" if lengths[0] is not None and lengths[1] is not None:
                return Kind("list", lengths[0] - lengths[1])
            case "merge" if lengths[0] is not None and lengths[1] is not None:
                return Kind("list", lengths[0] + lengths[1])
            case "normalize":
                return kinds[0]
            case "max" | "min" | "abs":
                return REAL if any(kind.what == "real" for kind in kinds) else ANY
        return _RESULTS.get(function, REAL if function in FUNCTIONS else ANY)

    def _about_tensor(self, function: str, args: tuple[s.Expr, ...], pos: s.Pos, names: Names) -> Kind:
        count = 2 if function == "dim" else 1
        if len(args) != count or not isinstance(args[0], s.Name):
            self.problem(f"`{function}` takes the name of a tensor" + (" and an axis" if count == 2 else ""), pos)
            return ANY
        tensor = args[0]
        if tensor.id not in names.tensors:
            hint = suggestion(tensor.id, names.tensors) or f"tensors here are {listing(names.tensors)}"
            self.problem(f"no tensor is called `{tensor.id}`", tensor.pos, hint)
        if count == 2:
            self.want(args[1], names, "int", "an axis is a whole number")
        if function == "shape":
            return Kind("list", names.tensors.get(tensor.id))
        return STR if function == "dtype" else INT

    def _read(self, read: s.Read, names: Names) -> Kind:
        inner = names.as_index()
        length = self.length(read.index, inner)
        if not names.element:
            self.problem(f"`{read.tensor}` cannot be read here: only sizes and attributes are known", read.pos)
        elif read.tensor not in names.tensors:
            hint = suggestion(read.tensor, names.tensors) or f"tensors here are {listing(names.tensors)}"
            self.problem(f"no tensor is called `{read.tensor}`", read.pos, hint)
        else:
            rank = names.tensors[read.tensor]
            if rank is not None and length is not None and substitute(rank - length, self.lengths) != 0:
                self.problem(f"`{read.tensor}` has rank {rank} but is read with {length} indices", read.pos)
        if read.fill is not None:
            self.want(read.fill, inner, "real", "what a read outside the tensor gives is a number")
        return REAL

    def _reduce(self, reduce: s.Reduce, names: Names) -> Kind:
        if not names.element:
            self.problem(f"`{reduce.kind}` over a range stands only where tensors are read", reduce.pos)
        more: dict[str, Kind] = {}
        for binder in reduce.binders:
            what = "list" if binder.starred else "int"
            kind = self.want(
                binder.bound,
                names.as_index(),
                what,
                f"the bound of `{binder.name}` must be {'a list' if binder.starred else 'a number'}",
            )
            if binder.name in more:
                self.problem(f"index `{binder.name}` is bound twice", binder.pos)
            more[binder.name] = Kind("list", kind.length) if binder.starred else INT
        hiding = [(reduce.kind, binder) for binder in reduce.binders if binder.name in names.values]
        self.shadowing += hiding
        self.want(reduce.body, names.with_indices(more), "real", "an element is a number")
        del self.shadowing[len(self.shadowing) - len(hiding) :]
        return REAL


def position(expr: s.Expr) -> s.Pos:
    """Where an expression begins."""
    match expr:
        case s.Bin(_, left) | s.Cmp(_, left):
            return position(left)
    return expr.pos


def _either(a: Kind, b: Kind) -> Kind:
    if a.what == b.what:
        return a if a.length == b.length else Kind(a.what)
    return REAL if {a.what, b.what} == {"int", "real"} else ANY


def _functions(name: str, elementary: bool) -> list[tuple[Callable[..., object], int]]:
    """The functions of a name, with the number of arguments that are not written (the array module)."""
    return [*([(FUNCTIONS[name], 1)] if elementary else []), *([(BUILTINS[name], 0)] if name in BUILTINS else [])]


def _takes(function: tuple[Callable[..., object], int], count: int) -> bool:
    least, most = _arity(function[0])
    return least <= count + function[1] <= most


@cache
def _arity(function: Callable[..., object]) -> tuple[int, float]:
    try:
        params = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function written in C without a signature
        return 0, float("inf")
    fixed = [p for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in fixed)
    return least, float("inf") if any(p.kind == p.VAR_POSITIONAL for p in params) else len(fixed)


def _usage(function: str) -> str:
    names = [
        name for name in inspect.signature(BUILTINS.get(function) or FUNCTIONS[function]).parameters if name != "xp"
    ]
    return f"it is written `{function}({', '.join(names)})`"


def length_symbol(name: str) -> Quantity:
    """The length of a list that is only known by name."""
    return var(f"len {name}")
