"""`python -m taso` is `taso`."""

from taso.cli import main

if __name__ == "__main__":
    main(prog_name="taso")
