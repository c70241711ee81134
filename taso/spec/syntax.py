"""The syntax tree of the specification language: expressions, terms (graphs of operators) and declarations.

Two levels. An *expression* (`Expr`) computes numbers: indices, dimensions, attributes, conditions, and the element of
a tensor. A *term* (`Term`) is a small graph of operators applied to tensors. `/` means floor division among indices,
dimensions and integer attributes, and real division among elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Pos:
    """A place in a file: line and column count from 1."""

    line: int = 0
    column: int = 0


NOWHERE = Pos()


def _pos() -> Pos:
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Num:
    """A number; integers are exact, `inf` is written `inf` and kept as a float."""

    value: Fraction | float
    pos: Pos = _pos()


@dataclass(frozen=True)
class Str:
    value: str
    pos: Pos = _pos()


@dataclass(frozen=True)
class Name:
    """A dimension, index, attribute or (inside `dim`, `rank`, `shape`) a tensor."""

    id: str
    pos: Pos = _pos()


@dataclass(frozen=True)
class Neg:
    value: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class Bin:
    """`op` is one of + - * / % ++ (`++` joins two lists)."""

    op: str
    left: Expr
    right: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class Cmp:
    """`op` is one of == != < <= > >= in. Lists compare element by element; all must hold."""

    op: str
    left: Expr
    right: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class Logic:
    """`op` is `and`, `or` or `not` (one operand)."""

    op: str
    operands: tuple[Expr, ...]
    pos: Pos = _pos()


@dataclass(frozen=True)
class Call:
    """A built-in function of numbers or lists: `max(a, b)`, `exp(a)`, `dim(x, 1)`, `select(s, perm)`."""

    function: str
    args: tuple[Expr, ...]
    pos: Pos = _pos()


@dataclass(frozen=True)
class Star:
    """`*s`: the elements of a list in place, inside a shape, an index or a list."""

    value: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class ListOf:
    items: tuple[Expr, ...]
    pos: Pos = _pos()


@dataclass(frozen=True)
class Read:
    """`x[i, *j | fill]`: an element of a tensor; outside the tensor it is `fill` (an error if there is none)."""

    tensor: str
    index: tuple[Expr, ...]
    fill: Expr | None = None
    pos: Pos = _pos()


@dataclass(frozen=True)
class Binder:
    """`i < n` or `*i < s`: an index (or list of indices) from 0 up to below a bound (or list of bounds)."""

    name: str
    starred: bool
    bound: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class Reduce:
    """`sum(i < n) e` or `max(i < n) e`."""

    kind: str
    binders: tuple[Binder, ...]
    body: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class If:
    condition: Expr
    then: Expr
    otherwise: Expr
    pos: Pos = _pos()


Expr = Num | Str | Name | Neg | Bin | Cmp | Logic | Call | Star | ListOf | Read | Reduce | If


# --- terms ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """A tensor by name."""

    name: str
    pos: Pos = _pos()


@dataclass(frozen=True)
class Literal:
    """A number where a tensor is expected: a constant of the shape that the place asks for."""

    value: Expr
    pos: Pos = _pos()


@dataclass(frozen=True)
class Apply:
    """An operator (or macro) applied to tensors. `attrs` holds only what is written; the rest are defaults."""

    op: str
    args: tuple[Term, ...]
    attrs: tuple[tuple[str, Expr], ...] = ()
    pos: Pos = _pos()


@dataclass(frozen=True)
class Choose:
    """`if c then t else u` between terms; only in macros and imports, where `c` is known when it is read."""

    condition: Expr
    then: Term
    otherwise: Term
    pos: Pos = _pos()


@dataclass(frozen=True)
class Fold:
    """`fold(concat, xs; axis = k)`: an operator of two tensors folded from the left over a variadic parameter."""

    op: str
    over: str
    attrs: tuple[tuple[str, Expr], ...] = ()
    pos: Pos = _pos()


Term = Var | Literal | Apply | Choose | Fold


# --- declarations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DimItem:
    """One entry of a declared shape. `starred` entries are lists; `length` fixes how long one is (`*p:axis`)."""

    value: Expr
    starred: bool = False
    length: Expr | None = None
    pos: Pos = _pos()


@dataclass(frozen=True)
class Param:
    """A tensor parameter with its declared shape."""

    name: str
    dims: tuple[DimItem, ...]
    pos: Pos = _pos()


@dataclass(frozen=True)
class AttrDecl:
    """An attribute. `type` is int, ints, real, bool, axis, axes, perm or shape; `like` names a list that is as long.

    int, ints and shape are numeric: symbols in a proof. axis, axes, perm and bool are structural: a proof fixes them.
    A `shape` without default may be left out in a term: it is what the place asks for.
    """

    name: str
    type: str
    like: str | None = None
    default: Expr | None = None
    pos: Pos = _pos()


@dataclass(frozen=True)
class OnnxArg:
    """An input of an exported ONNX node.

    `kind` is tensor (`value` is a Term), ints (a constant list of int64), scalar (a constant of the first tensor's
    type) or none (an empty slot).
    """

    kind: str
    value: Term | Expr | None
    pos: Pos = _pos()


@dataclass(frozen=True)
class OnnxForm:
    """How an operator is written in ONNX: `onnx Conv(x, f; strides = stride) since 1 until 12 in "domain" when c`."""

    op_type: str
    args: tuple[OnnxArg, ...]
    attrs: tuple[tuple[str, Expr], ...]
    since: int
    until: int | None = None
    domain: str = ""
    broadcasting: bool = False
    variadic: bool = False
    when: Expr | None = None
    pos: Pos = _pos()


@dataclass(frozen=True)
class Operator:
    """`op`: parameters, attributes, result shape, requirements and the element at an index of the result."""

    name: str
    params: tuple[Param, ...]
    attrs: tuple[AttrDecl, ...]
    result: tuple[DimItem, ...]
    requires: tuple[Expr, ...]
    index: tuple[DimItem, ...]
    body: Expr
    identity: Expr | None = None
    implicit: Term | None = None
    onnx: tuple[OnnxForm, ...] = ()
    doc: str = ""
    pos: Pos = _pos()

    def __hash__(self) -> int:  # what is remembered about an operator is looked up all the time
        return hash(self.name)


@dataclass(frozen=True)
class Macro:
    """An operator defined by a term of others; `forms` are further terms that mean the same."""

    name: str
    params: tuple[Param, ...]
    attrs: tuple[AttrDecl, ...]
    body: Term
    forms: tuple[Term, ...] = ()
    implicit: Term | None = None
    onnx: tuple[OnnxForm, ...] = ()
    requires: tuple[Expr, ...] = ()
    doc: str = ""
    pos: Pos = _pos()

    def __hash__(self) -> int:  # what is remembered about an operator is looked up all the time
        return hash(self.name)


@dataclass(frozen=True)
class ImportParam:
    """An input of an ONNX node: a tensor, a variadic list (`xs...`), or a constant read as `ints`, `int`, `real`."""

    name: str
    kind: str = "tensor"  # tensor, variadic, ints, int, reals, real, none
    pos: Pos = _pos()


@dataclass(frozen=True)
class Import:
    """How an ONNX node is read. Applies if arity, opset, attributes and `when` fit; several are tried in order.

    `attrs` are the ONNX attributes with their defaults (`None`: must be present); an attribute that is not listed keeps
    the import from applying. The built-in name `output` is the number of the output that is being read.
    """

    op_type: str
    params: tuple[ImportParam, ...]
    attrs: tuple[tuple[str, Expr | None], ...]
    since: int
    until: int | None
    domain: str
    when: Expr | None
    body: Term
    pos: Pos = _pos()


@dataclass(frozen=True)
class Content:
    """What whole numbers an ONNX node computes: `content Shape(x) since 1 = shape(x)`, a list or (rank 0) one number.

    With `what` "extent" it is the shape of what it computes: `extent ConstantOfShape(sizes: ints) since 9 = sizes`.
    Parameters of kind ints and int are inputs whose content is known itself, possibly with symbols; of a tensor only
    the shape is known. A variadic parameter is the list of its inputs' contents. Attributes that an extent does not
    list are ignored; a content does not apply then.
    """

    op_type: str
    params: tuple[ImportParam, ...]
    attrs: tuple[tuple[str, Expr | None], ...]
    since: int
    until: int | None
    domain: str
    when: Expr | None
    body: Expr
    what: str = "content"
    pos: Pos = _pos()


@dataclass(frozen=True)
class Role:
    """ONNX operators that reading and writing a model must know although the specification gives them no meaning.

    `random`: gives other values each time; `copy`: gives its input; `constant`: holds a tensor in an attribute;
    `packed`: unpacks a tensor that is stored small on purpose, so that it is not computed when a model is written.
    """

    role: str
    op_types: tuple[str, ...]
    domain: str = ""
    pos: Pos = _pos()


@dataclass(frozen=True)
class Ranks:
    """For which ranks something holds: `ranks (x, f) in [(3, 3), (4, 4)]`."""

    names: tuple[str, ...]
    choices: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Axiom:
    """Two terms that are equal wherever both are defined and the conditions hold."""

    left: Term
    right: Term
    where: tuple[Expr, ...] = ()
    ranks: Ranks | None = None
    pos: Pos = _pos()


@dataclass(frozen=True)
class Rule:
    """A rewrite: every tensor of `source` may be replaced by the tensor of `target` at the same place.

    Names in attributes are variables: a bare name in the source is bound by what it meets. `ranks` says for which ranks
    of which tensors the rule was proved. `records` are the lines `proved ...`, `found ...` as written.
    """

    name: str
    source: tuple[Term, ...]
    target: tuple[Term, ...]
    where: tuple[Expr, ...] = ()
    ranks: Ranks | None = None
    records: tuple[str, ...] = ()
    pos: Pos = _pos()


@dataclass(frozen=True)
class UniverseInput:
    """Interchangeable input tensors of one shape."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    pos: Pos = _pos()


@dataclass(frozen=True)
class Instance:
    """An operator instance to enumerate: `apply conv3x3(x, f) when c = term`. It counts as one operator."""

    name: str
    params: tuple[str, ...]
    when: Expr | None
    body: Term
    pos: Pos = _pos()


@dataclass(frozen=True)
class Universe:
    """What to enumerate: inputs, constants (instances without parameters, which cost nothing), operator instances."""

    name: str
    inputs: tuple[UniverseInput, ...]
    constants: tuple[Instance, ...]
    instances: tuple[Instance, ...]
    options: tuple[tuple[str, Expr], ...] = ()
    pos: Pos = _pos()


Item = Operator | Macro | Import | Content | Role | Axiom | Rule | Universe
