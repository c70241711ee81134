"""Columns of text that line up, without borders: readable on a terminal, in a file and in a mail."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

Cell = str | Text


def grid(
    rows: Sequence[Sequence[Cell]], *, align: str, header: Sequence[str] = (), indent: int = 2, gap: int = 2
) -> Text:
    """Lay rows out in columns.

    `align` has a letter per column: `l` or `r`. The last column, if aligned to the left, is not padded. The header, if
    there is one, is shown dim.
    """
    shown = [[one if isinstance(one, Text) else Text(one) for one in row] for row in rows]
    if header:
        shown.insert(0, [Text(one, style="dim") for one in header])
    widths = [max(cell_len(row[k].plain) for row in shown) if shown else 0 for k in range(len(align))]
    lines = []
    for row in shown:
        line = Text(" " * indent)
        for k, (cell, width) in enumerate(zip(row, widths)):
            fill = " " * (width - cell_len(cell.plain))
            last = k == len(align) - 1
            line.append_text(Text(fill) + cell if align[k] == "r" else cell if last else cell + Text(fill))
            if not last:
                line.append(" " * gap)
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)
