"""taso makes ONNX models faster: rewrites that are discovered and proved, results that are checked and measured.

    import taso

    result = taso.optimize("model.onnx", input_shapes={"images": (1, 3, 640, 640)})
    print(result.report.speedup)

Everything public is listed in `__all__`. The names are loaded when they are first used, so that `import taso` is quick
and a program that only proves rules never loads a runtime. Every exception that is raised on purpose is a `TasoError`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from taso.version import __version__

if TYPE_CHECKING:
    from taso.api import prove, verify
    from taso.errors import (
        CheckError,
        ExportError,
        MeasureError,
        ModelError,
        ProofError,
        ShapeError,
        SpecError,
        TasoError,
        UsageError,
    )
    from taso.generate.generate import generate_rules
    from taso.optimize import optimize
    from taso.prove.verdict import Verdict
    from taso.result import Report, Result
    from taso.rules.rule import load_rules

__all__ = [
    "CheckError",
    "ExportError",
    "MeasureError",
    "ModelError",
    "ProofError",
    "Report",
    "Result",
    "ShapeError",
    "SpecError",
    "TasoError",
    "UsageError",
    "Verdict",
    "__version__",
    "generate_rules",
    "load_rules",
    "optimize",
    "prove",
    "verify",
]

_HOMES = {
    "optimize": "taso.optimize",
    "Result": "taso.result",
    "Report": "taso.result",
    "generate_rules": "taso.generate.generate",
    "load_rules": "taso.rules.rule",
    "prove": "taso.api",
    "verify": "taso.api",
    "Verdict": "taso.prove.verdict",
    **{name: "taso.errors" for name in __all__ if name.endswith("Error")},
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'taso' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `taso.optimize` and `taso.prove` the functions: importing the modules of these names would replace them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
