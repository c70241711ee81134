"""The specification language: grammar, syntax tree, checker, and what follows from a declaration."""
