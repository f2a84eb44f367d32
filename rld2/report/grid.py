"""A table whose cells may be bold, with notes under it: for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

WARNING = "WARNING"  # how a note begins that must not be missed

LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class Cell(NamedTuple):
    text: str
    bold: bool = False


class Grid(NamedTuple):
    """The first cell of every row is its name. Notes are part of the table: every format shows them."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def transposed(grid: Grid) -> Grid:
    """Rows as columns, for a table that would be too wide; the corner keeps its word."""
    columns = list(zip(*grid.rows, strict=True))
    header = (grid.header[0], *(cell.text for cell in columns[0]))
    rows = ((Cell(name), *column) for name, column in zip(grid.header[1:], columns[1:], strict=True))
    return grid._replace(header=header, rows=tuple(rows))


def to_rich(grid: Grid) -> Group:
    """Notes stand under the table and not in its caption, which would be as narrow as the table."""
    table = Table(title=escape(grid.title), title_justify="left")
    for index, name in enumerate(grid.header):
        table.add_column(escape(name), justify="right" if index else "left")
    for row in grid.rows:
        table.add_row(*(f"[bold]{escape(cell.text)}[/bold]" if cell.bold else escape(cell.text) for cell in row))
    return Group(table, *(Text(note, "bold yellow" if note.startswith(WARNING) else "dim") for note in grid.notes))


def to_markdown(grid: Grid) -> str:
    def shown(cell: Cell) -> str:
        text = cell.text.replace("|", r"\|")
        return f"**{text}**" if cell.bold else text

    lines = [f"{grid.title}\n", _piped([name.replace("|", r"\|") for name in grid.header])]
    lines.append("|:---|" + "---:|" * (len(grid.header) - 1))
    lines += [_piped([shown(cell) for cell in row]) for row in grid.rows]
    if grid.notes:
        lines += ["", *(f"- {note}" for note in grid.notes)]
    return "\n".join(lines) + "\n"


def to_latex(grid: Grid) -> str:
    """A tabular; its rules are those of the package booktabs."""

    def shown(cell: Cell) -> str:
        return rf"\textbf{{{_latex(cell.text)}}}" if cell.bold else _latex(cell.text)

    lines = [
        rf"{_latex(grid.title)}\par",
        rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}} % \usepackage{{booktabs}}",
        r"\toprule",
        " & ".join(map(_latex, grid.header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(shown, row)) + r" \\" for row in grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*lines, *(rf"\par{{\footnotesize {_latex(note)}}}" for note in grid.notes)]) + "\n"


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """One line a record, in full precision; what is None stays empty."""
    if not records:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
