"""Instances: equalities of two concrete graphs, as the enumerator finds them, made ready to be generalised."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from taso.generate.universe import Concrete
from taso.prove.bind import tensors_of
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.plan import concrete
from taso.spec.spec import Spec
from taso.spec.value import Shape

MAX_RANK = 4
_LETTERS = {0: "rstuvw", 1: "vwuzst", 2: "abcdefgh"}  # by rank: scalars, vectors, matrices
_MORE_AXES = "xyzfghuvw"
_ALL = "abcdefghmnopq"


@dataclass
class Instance:
    """An equality of concrete graphs, typed.

    source, target: one tree for each output.
    shapes: of the input tensors, in the order in which they appear.
    sizes: `dim(x, k)` for each class of sizes that the source forces to be equal, with its value.
    shaped: the operators whose shape follows neither from their tensors nor from their place, so that it is written.
    """

    source: tuple[Typed, ...]
    target: tuple[Typed, ...]
    shapes: dict[str, Concrete]
    sizes: list[tuple[s.Expr, int]] = field(default_factory=list)
    shaped: frozenset[Typed] = frozenset()

    @property
    def own_ranks(self) -> s.Ranks:
        """The ranks that the tensors have here."""
        return s.Ranks(tuple(self.shapes), (tuple(map(len, self.shapes.values())),))

    @property
    def more_ranks(self) -> s.Ranks:
        """Rank choices to try a schema for.

        Tensors of one rank keep one rank; the largest takes all up to MAX_RANK, the others one more or less; scalars
        stay scalars.
        """
        ranks = [len(shape) for shape in self.shapes.values()]
        groups = sorted(set(ranks))
        options = [range(MAX_RANK + 1) if g == groups[-1] else (g,) if g == 0 else (g - 1, g, g + 1) for g in groups]
        choices = [dict(zip(groups, assigned)) for assigned in itertools.product(*options)]
        return s.Ranks(tuple(self.shapes), tuple(tuple(chosen[rank] for rank in ranks) for chosen in choices))


def type_instance(
    source: Sequence[s.Term], target: Sequence[s.Term], shapes: Mapping[str, Shape], spec: Spec
) -> Instance:
    """Type both sides of an equality; the tensors get short names by rank.

    Raises:
        ShapeError: the sides do not fit the shapes or each other.
        SpecError: a term names what is not there.
    """
    order = tensors_of((*source, *target))
    names = _short_names(order, shapes)
    renamed = {names[name]: concrete(shapes[name]) for name in order}
    left = tuple(elaborate(_renamed(term, names), spec, renamed) for term in source)
    right = tuple(elaborate(_renamed(t, names), spec, renamed, result=o.shape) for t, o in zip(target, left))
    return Instance(left, right, renamed)


def _renamed(term: s.Term, names: Mapping[str, str]) -> s.Term:
    if isinstance(term, s.Var):
        return s.Var(names[term.name])
    if isinstance(term, s.Apply):
        return replace(term, args=tuple(_renamed(arg, names) for arg in term.args))
    return term


def _short_names(order: Iterable[str], shapes: Mapping[str, Shape]) -> dict[str, str]:
    """A letter for each tensor: vectors v, w, ..., matrices a, b, ..., and what was called x stays x, y or z."""
    names: dict[str, str] = {}
    for name in order:
        rank = len(shapes[name])
        first = "xyz" if rank > 2 and name[0] == "x" else ""
        letters = first + _LETTERS.get(rank, _MORE_AXES) + _ALL
        names[name] = next(letter for letter in letters if letter not in names.values())
    return names
