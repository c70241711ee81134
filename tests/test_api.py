"""The public names: all there, loaded when used, and what they say they are."""

from __future__ import annotations

import inspect
from pathlib import Path

import onnx
import pytest

import taso
from tests.cli.models import one_matmul


@pytest.mark.parametrize("name", taso.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(taso, name)
    assert name in dir(taso)
    assert isinstance(value, str) or (inspect.getdoc(value) or "").strip()


def test_every_error_is_a_taso_error() -> None:
    errors = [getattr(taso, name) for name in taso.__all__ if name.endswith("Error")]
    assert all(issubclass(error, taso.TasoError) for error in errors)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="optimise"):
        taso.optimise  # type: ignore[attr-defined]  # noqa: B018


def test_prove_takes_text_and_says_what_it_found() -> None:
    assert taso.prove("relu(relu(x)) ==> relu(x)").status == "proved"
    wrong = taso.prove("relu(add(a, b)) ==> add(relu(a), relu(b))")
    assert wrong.status == "refuted" and "the left side is" in str(wrong.counterexample)
    with pytest.raises(taso.SpecError, match="<rule>:1:5"):
        taso.prove("relu{x} ==> x")


def test_verify_takes_paths_bytes_and_models(tmp_path: Path) -> None:
    path = one_matmul(tmp_path / "a.onnx")
    assert taso.verify(path, path.read_bytes(), check=1).ok
    assert not taso.verify(onnx.load(path), str(one_matmul(tmp_path / "b.onnx", factor=2.0)), check=1).ok


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(taso.ModelError, match="no such file"):
        taso.verify(tmp_path / "a.onnx", tmp_path / "b.onnx")
    with pytest.raises(taso.UsageError, match="its inputs are: x"):
        taso.verify(one_matmul(tmp_path / "a.onnx"), tmp_path / "a.onnx", input_shapes={"z": (1,)})
