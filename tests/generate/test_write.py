"""Attributes that are left out because they are the default."""

from __future__ import annotations

from fractions import Fraction

import pytest

from taso.generate.write import is_default
from taso.spec import syntax as s
from taso.spec.parse import parse


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("beta: real = 1 / 6", Fraction(1, 6), True),
        ("beta: real = 1 / 6", 0, False),  # `/` is real division here
        ("step: int = 3 / 2", 1, True),
        ("step: int = 1", 2, False),
        ("step: int", 0, False),
    ],
)
def test_the_default_is_what_its_type_says(declared: str, value: object, expected: bool) -> None:
    (macro,) = parse(f"macro m(x[*s]; {declared}) = x")
    assert isinstance(macro, s.Macro)
    assert is_default(macro.attrs[0], value) is expected
