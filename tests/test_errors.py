"""What error messages say about the place, and which names they suggest."""

from __future__ import annotations

import pytest

from taso.errors import SpecError, did_you_mean


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"path": "a.op", "line": 2, "column": 3, "source": "op\n  x"}, "a.op:2:3: error: no\n   |   x\n   |   ^"),
        ({"path": "a.op", "line": 2}, "a.op:2: error: no"),
        ({"path": "a.op"}, "a.op: error: no"),
        ({"path": "a.op", "column": 3}, "a.op: error: no"),
        ({"line": 1, "column": 3}, "<text>:1:3: error: no"),
        ({"hint": "yes"}, "error: no\n   = yes"),
        ({}, "error: no"),
    ],
)
def test_only_the_known_part_of_a_place_is_printed(place: dict[str, object], message: str) -> None:
    assert str(SpecError("no", **place)) == message  # type: ignore[arg-type]


def test_a_place_is_filled_in_later() -> None:
    error = SpecError("no", line=1, column=2, hint="yes", note="here").placed("a.op", "op")
    assert str(error) == "a.op:1:2: error: no\n   | op\n   |  ^ here\n   = yes"


def test_the_closest_name_is_suggested() -> None:
    assert did_you_mean("imput", ["output", "input"]) == ' (did you mean "input"?)'
    assert did_you_mean("imput", ["output", "input"], "did you mean `{}`?") == "did you mean `input`?"
    assert did_you_mean("IMAGES", ["Images"]) == ' (did you mean "Images"?)'
    assert did_you_mean("zzz", ["input"]) == did_you_mean("x", []) == ""
