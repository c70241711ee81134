"""A specification: everything that the files of a folder (and any further files) declare, looked up by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from taso.errors import SpecError, did_you_mean
from taso.resources import opspec_dir
from taso.spec import syntax as s
from taso.spec.parse import parse
from taso.spec.shapes import Declared
from taso.spec.value import Shape, Value


@dataclass
class Spec:
    """Operators, macros, imports, axioms and universes; `hash` names their exact text."""

    operators: dict[str, s.Operator] = field(default_factory=dict)
    macros: dict[str, s.Macro] = field(default_factory=dict)
    imports: dict[tuple[str, str], list[s.Import]] = field(default_factory=dict)
    contents: dict[tuple[str, str], list[s.Content]] = field(default_factory=dict)
    extents: dict[tuple[str, str], list[s.Content]] = field(default_factory=dict)
    roles: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    axioms: list[s.Axiom] = field(default_factory=list)
    universes: dict[str, s.Universe] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    homes: dict[int, str] = field(default_factory=dict)
    items: list[s.Item] = field(default_factory=list)
    hash: str = ""

    def declared(self, name: str, pos: s.Pos = s.NOWHERE) -> Declared:
        """The operator or macro of a name. Raises SpecError with a suggestion."""
        found = self.operators.get(name) or self.macros.get(name)
        if found is None:
            hint = did_you_mean(name, [*self.operators, *self.macros], "did you mean `{}`?")
            raise SpecError(f"no operator is called `{name}`", line=pos.line, column=pos.column, hint=hint)
        return found

    def stretching(self, shape: Shape) -> tuple[str, dict[str, Value]]:
        """The operator, with attributes, that repeats a scalar over a shape: the one with an `implicit` form.

        Raises SpecError if no operator of the specification is implicit in ONNX.
        """
        for op in self.operators.values():
            if op.implicit is not None:
                return op.name, {attr.name: shape if attr.type == "shape" else () for attr in op.attrs}
        raise SpecError("no operator is declared `implicit`, so a number cannot stand for a tensor")

    def add(self, text: str, path: str) -> None:
        """Take in the declarations of one file's text. Raises SpecError for a name that is already taken."""
        self.take(parse(text, path), text, path)

    def take(self, items: Iterable[s.Item], text: str, path: str) -> None:
        """Take in declarations that were parsed from a text. Raises SpecError for a name that is already taken."""
        for item in items:
            self.homes[id(item)] = path
            self.items.append(item)
            match item:
                case s.Operator() | s.Macro():
                    if item.name in self.operators or item.name in self.macros:
                        raise SpecError(
                            f"`{item.name}` is already declared",
                            path=path,
                            line=item.pos.line,
                            column=item.pos.column,
                            source=text,
                        )
                    if isinstance(item, s.Operator):
                        self.operators[item.name] = item
                    else:
                        self.macros[item.name] = item
                case s.Import():
                    self.imports.setdefault((item.domain, item.op_type), []).append(item)
                case s.Content():
                    told = self.extents if item.what == "extent" else self.contents
                    told.setdefault((item.domain, item.op_type), []).append(item)
                case s.Role():
                    self.roles.setdefault(item.role, []).extend((item.domain, op_type) for op_type in item.op_types)
                case s.Axiom():
                    self.axioms.append(item)
                case s.Universe():
                    if item.name in self.universes:
                        raise SpecError(
                            f"universe `{item.name}` is already declared",
                            path=path, line=item.pos.line, column=item.pos.column, source=text,
                        )  # fmt: skip
                    self.universes[item.name] = item
                case s.Rule():
                    raise SpecError(
                        "rules are generated and belong into a .rules file; an equation taken for granted is an axiom",
                        path=path, line=item.pos.line, column=item.pos.column, source=text,
                    )  # fmt: skip
        self.files[path] = text
        digest = hashlib.sha256()
        for name in sorted(self.files, key=lambda p: (Path(p).name, p)):
            digest.update(self.files[name].encode())
        self.hash = digest.hexdigest()[:12]


def read_spec(paths: Iterable[Path]) -> Spec:
    """The specification in files and folders (`*.op`, `*.universe`, searched recursively), in sorted order."""
    spec = Spec()
    for path in paths:
        if not path.exists():
            raise SpecError("no such file or folder", path=str(path))
        files: Sequence[Path] = sorted([*path.rglob("*.op"), *path.rglob("*.universe")]) if path.is_dir() else [path]
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SpecError(f"cannot be read: {error}", path=str(file)) from error
            spec.add(text, str(file))
    return spec


@cache
def load_spec(extra: tuple[Path, ...] = ()) -> Spec:
    """The shipped specification, with further files on top (`--spec FILE.op`)."""
    return read_spec([opspec_dir(), *extra])
