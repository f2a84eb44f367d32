"""Sequence files: TSV and CSV tables and FASTA, plain or gzipped; what is wrong is named with its line."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from rld2.sequences.vocabulary import DNA, Vocabulary

DELIMITERS = {".tsv": "\t", ".csv": ","}
FASTA = (".fasta", ".fa", ".fna", ".faa")
LINE_WIDTH = 60  # of sequences in FASTA files


class Table(NamedTuple):
    """Sequences of one length, with what the file says about each."""

    names: list[str]
    tokens: Int[np.ndarray, "n k"]
    scores: Float[np.ndarray, " n"] | None
    columns: dict[str, list[str]]  # the other columns asked for, as they stand


def _open(path: Path) -> TextIOWrapper:
    if not path.is_file():
        raise ValueError(
            f"no file at {path}; give the path of a .tsv, .csv or FASTA file, gzipped or not (a run needs the file it "
            f"learned from: where that has moved, correct agent.data.path in the run's config.json)"
        )
    encoding = "utf-8-sig"  # which leaves out the mark that some programs begin a file with
    return gzip.open(path, "rt", encoding=encoding) if path.suffix == ".gz" else path.open(encoding=encoding)


def _kind(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()


def read(
    path: Path | str,
    vocabulary: Vocabulary = DNA,
    *,
    sequence: str = "sequence",
    score: str | None = None,
    name: str | None = None,
    columns: Sequence[str] = (),
) -> Table:
    """A table or FASTA file by its ending. `sequence`, `score` and `name` are columns of a table.

    A FASTA file has no columns: what a table has in the column `locus` stands in its header lines as "locus=...", and
    a score as "score=..."; a sequence's name is the first word of its header.
    """
    path = Path(path)
    kind = _kind(path)
    if kind not in DELIMITERS and kind not in FASTA:
        allowed = [*DELIMITERS, *FASTA]
        raise ValueError(f"{path} must end in one of {allowed}, with or without .gz")
    try:
        with _open(path) as file:
            rows = (
                _fasta_rows(file, path, score, columns)
                if kind in FASTA
                else _table_rows(file, path, DELIMITERS[kind], sequence, score, name, columns)
            )
            return _collect(rows, path, vocabulary, score is not None, columns)
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} cannot be read as text ({error}); is it complete, and gzipped as it says?") from error


class _Row(NamedTuple):
    line: int
    name: str
    sequence: str
    score: str | None
    columns: list[str]


def _table_rows(
    file: TextIOWrapper,
    path: Path,
    delimiter: str,
    sequence: str,
    score: str | None,
    name: str | None,
    columns: Sequence[str],
) -> Iterator[_Row]:
    reader = csv.reader(file, delimiter=delimiter)
    header = next(reader, None)
    if header is None:
        raise ValueError(f"{path} is empty; its first line must name the columns")
    wanted = [sequence, *([score] if score else []), *([name] if name else []), *columns]
    missing = [column for column in wanted if column not in header]
    if missing:
        raise ValueError(f"{path} line 1: no column {missing[0]!r}; it has {header}")
    at = {column: header.index(column) for column in wanted}
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise ValueError(f"{path} line {reader.line_num}: {len(cells)} cells, but {len(header)} columns are named")
        yield _Row(
            reader.line_num,
            cells[at[name]] if name else str(reader.line_num - 1),
            cells[at[sequence]],
            cells[at[score]] if score else None,
            [cells[at[column]] for column in columns],
        )


def _fasta_rows(file: TextIOWrapper, path: Path, score: str | None, columns: Sequence[str]) -> Iterator[_Row]:
    header: tuple[int, str] | None = None
    parts: list[str] = []

    def finished(line: int, title: str) -> _Row:
        if not parts:
            raise ValueError(f"{path} line {line}: no sequence follows the header {'>' + title!r}")
        words = title.split() or [""]
        said = {key: value for key, found, value in (word.partition("=") for word in words) if found}
        missing = [column for column in columns if column not in said]
        if missing:
            raise ValueError(f"{path} line {line}: the header {'>' + title!r} has no {missing[0] + '='!r}")
        value = said.get("score") if score else None
        return _Row(line, words[0], "".join(parts), value, [said[column] for column in columns])

    for number, text in enumerate(file, start=1):
        text = text.strip()
        if text.startswith(">"):
            if header is not None:
                yield finished(*header)
            header, parts = (number, text[1:]), []
        elif text and header is None:
            raise ValueError(
                f"{path} line {number}: a FASTA file begins with a header line, '>name', got {text[:20]!r}"
            )
        elif text:
            parts.append(text)
    if header is not None:
        yield finished(*header)


def _collect(rows: Iterator[_Row], path: Path, vocabulary: Vocabulary, scored: bool, columns: Sequence[str]) -> Table:
    names: list[str] = []
    tokens: list[np.ndarray] = []
    scores: list[float] = []
    others: dict[str, list[str]] = {column: [] for column in columns}
    for row in rows:
        try:
            encoded = vocabulary.encode(row.sequence)
        except ValueError as error:
            raise ValueError(f"{path} line {row.line}: {error}") from error
        if tokens and len(encoded) != len(tokens[0]):
            raise ValueError(
                f"{path} line {row.line}: a sequence of {len(encoded)} letters among sequences of {len(tokens[0])}; "
                f"all must have the same length"
            )
        if not len(encoded):
            raise ValueError(f"{path} line {row.line}: an empty sequence")
        names.append(row.name)
        tokens.append(encoded)
        if scored:
            scores.append(_number(row, path))
        for column, cell in zip(columns, row.columns, strict=True):
            others[column].append(cell)
    if not tokens:
        raise ValueError(f"{path} holds no sequences")
    return Table(names, np.stack(tokens), np.array(scores) if scored else None, others)


def _number(row: _Row, path: Path) -> float:
    try:
        value = float(row.score or "")
    except ValueError:
        value = math.nan
    if row.score is None:
        raise ValueError(f"{path} line {row.line}: no score; in FASTA headers it stands as score=1.5")
    if not math.isfinite(value):
        raise ValueError(f"{path} line {row.line}: the score must be a finite number, got {row.score!r}")
    return value


def write_fasta(
    path: Path, sequences: Sequence[str], names: Sequence[str], scores: Sequence[float] | None = None
) -> None:
    """One record a sequence; a score goes into the header, where `read` finds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8") as file:
        for i, (name, sequence) in enumerate(zip(names, sequences, strict=True)):
            tail = "" if scores is None else f" score={scores[i]:.6g}"
            lines = [sequence[start : start + LINE_WIDTH] for start in range(0, len(sequence), LINE_WIDTH)]
            print(f">{name}{tail}", *lines, sep="\n", file=cast(TextIOWrapper, file))
