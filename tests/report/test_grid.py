"""A table in four formats: the same words, and nothing that breaks the format."""

import csv
import io

import pytest
from rich.console import Console

from rld2.report.grid import Cell, Grid, to_csv, to_latex, to_markdown, to_rich, transposed

GRID = Grid(
    "Score",
    ("method", "a_1", "b"),
    ((Cell("x|y"), Cell("1.0 [0, 2]", True), Cell("50 %")), (Cell("z"), Cell("-"), Cell("3", True))),
    ("WARNING a_1: frames differ",),
)


def test_markdown():
    assert to_markdown(GRID).splitlines() == [
        "Score",
        "",
        "| method | a_1 | b |",
        "|:---|---:|---:|",
        r"| x\|y | **1.0 [0, 2]** | 50 % |",
        "| z | - | **3** |",
        "",
        "- WARNING a_1: frames differ",
    ]
    assert to_markdown(GRID._replace(notes=())).splitlines()[-1] == "| z | - | **3** |"


def test_latex():
    assert to_latex(GRID).splitlines() == [
        r"Score\par",
        r"\begin{tabular}{lrr} % \usepackage{booktabs}",
        r"\toprule",
        r"method & a\_1 & b \\",
        r"\midrule",
        r"x|y & \textbf{1.0 [0, 2]} & 50 \% \\",
        r"z & - & \textbf{3} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par{\footnotesize WARNING a\_1: frames differ}",
    ]


def test_latex_escapes_what_has_a_meaning():
    text = to_latex(Grid(r"\&%$#_{}~^", ("m",), ()))
    assert text.startswith(r"\textbackslash{}\&\%\$\#\_\{\}\textasciitilde{}\textasciicircum{}\par")


def test_terminal_shows_brackets_as_they_are():
    """Rich takes [words] for styles; a cell, a name or a note may hold them."""
    grid = Grid("t [bold]", ("m", "[red]"), ((Cell("x"), Cell("[dim]1", True)),), ("[blink] note",))
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(to_rich(grid))
    text = console.export_text(styles=True)
    assert all(word in text for word in ("t [bold]", "[red]", "[blink] note"))
    assert "\x1b[1m[dim]1\x1b[0m" in text


def test_csv_is_read_back():
    records = [{"method": 'a, "b"', "mean": 1 / 3, "low": None}, {"method": "c", "mean": 2.0, "low": 1.0}]
    text = to_csv(records)
    assert text.splitlines()[0] == "method,mean,low"
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["method"], float(first["mean"]), first["low"]) == ('a, "b"', 1 / 3, "")
    assert second == {"method": "c", "mean": "2.0", "low": "1.0"}
    assert to_csv([]) == ""


def test_transposed_keeps_cells_and_notes():
    turned = transposed(GRID)
    assert turned.header == ("method", "x|y", "z")
    assert turned.rows == (
        (Cell("a_1"), Cell("1.0 [0, 2]", True), Cell("-")),
        (Cell("b"), Cell("50 %"), Cell("3", True)),
    )
    assert (turned.title, turned.notes) == (GRID.title, GRID.notes)
    assert transposed(turned) == GRID


@pytest.mark.parametrize("show", [to_markdown, to_latex])
def test_every_text_ends_with_one_newline(show):
    assert show(GRID).endswith("\n")
    assert not show(GRID).endswith("\n\n")
