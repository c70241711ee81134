"""What the prover says about a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from taso.spec import syntax as s


@dataclass(frozen=True)
class Counterexample:
    """Concrete tensors and attributes at which the sides of a rule differ; it was replayed with the specification.

    output: the number of the output that differs; place: the index in it, None if the right side has no value at all.
    left, right: the values there (right: the reason, if it has none).
    """

    tensors: Mapping[str, np.ndarray[Any, Any]]
    attrs: Mapping[str, Any]
    output: int
    place: tuple[int, ...] | None
    left: float | str
    right: float | str

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {_array(value)}" for name, value in self.tensors.items())
        attrs = ", ".join(f"{name} = {_attribute(value)}" for name, value in self.attrs.items())
        shapes = {tuple(value.shape) for value in self.tensors.values()}
        shape = f" (shape {list(next(iter(shapes)))})" if len(shapes) == 1 else ""
        where = "" if self.place is None or all(i == 0 for i in self.place) else f", index {list(self.place)},"
        output = f" of output {self.output}" if self.output else ""
        at = f"at {given}{shape}{', with ' + attrs if attrs else ''}"
        if self.place is None:
            return f"{at} the right side{output} is not defined: {self.right}"
        return f"{at}{where} the left side{output} is {_number(self.left)}, the right side is {_number(self.right)}"


def _attribute(value: Any) -> str:
    return f"[{', '.join(map(_attribute, value))}]" if isinstance(value, tuple) else str(value)


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.size > 24:
        return f"a tensor of shape {list(value.shape)}"

    def show(items: Any) -> str:
        return f"[{', '.join(map(show, items))}]" if isinstance(items, list) else _number(items)

    return show(value.tolist())


def _number(value: Any) -> str:
    return f"{value + 0.0:g}" if isinstance(value, (int, float)) else str(value)  # + 0.0: no minus zero


@dataclass(frozen=True)
class Verdict:
    """The answer to "does this rule hold?".

    ranks: the ranks of the input tensors for which it was proved (None unless proved).
    conditions: what had to be assumed beyond the rule's `where`, over `dim(x, k)` and attribute names; a verdict
        "proved" is relative to them. They are collected over all ranks and axes that were proved.
    exact: the sides do the same arithmetic and differ only in how they move data, so that not even rounding differs.
    """

    status: Literal["proved", "refuted", "unknown"]
    ranks: s.Ranks | None = None
    conditions: tuple[s.Expr, ...] = ()
    counterexample: Counterexample | None = None
    reason: str = ""
    seconds: float = 0.0
    exact: bool = False
