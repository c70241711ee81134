"""The command line: argument parsing and printing, nothing else. `main` is the entry point."""

from taso.cli.app import main

__all__ = ["main"]
