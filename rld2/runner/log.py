"""The only place that writes metrics: a JSONL file, TensorBoard, and a progress display."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN = {  # metric -> how the progress line calls it
    "return": "return",
    "kl": "KL",
    "effective_samples": "ESS",
    "entropy": "entropy",
    "budget_saturated": "saturated",
}


MILESTONES = [factor * 10**power for power in range(7) for factor in (1, 2, 5)]  # returns worth a line of their own


class Logger:
    """One line per report in `log.jsonl`, the same numbers in TensorBoard, the most telling ones on the terminal."""

    def __init__(self, folder: Path, total: int, done: int = 0, console: Console | None = None):
        from tensorboardX import SummaryWriter

        _rewind(folder, done)
        self.file = (folder / "log.jsonl").open("a", encoding="utf-8")
        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1 if done else None)
        self.console = console or Console()
        self.started, self.first, self.total = time.monotonic(), done, total
        self.best = 0
        self.progress = Progress(
            TextColumn("{task.completed:>10,.0f} frames"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[rate]:>7,.0f}/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[shown]}"),
            console=self.console,
            transient=False,
        )
        self.task = self.progress.add_task("train", total=total, completed=done, rate=0.0, shown="compiling ...")

    def __enter__(self) -> "Logger":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        self.file.close()
        self.board.close()

    def write(self, record: Mapping[str, Any]) -> None:
        """`record` holds `frames` and per-seed lists or plain numbers."""
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        frames = int(record["frames"])
        for name, value in record.items():
            if isinstance(value, list) and len(value) > 1:
                for seed, x in enumerate(value):
                    if x is not None:
                        self.board.add_scalar(f"{name}/seed{seed}", x, frames)
            mean = average(value)
            if mean is not None and name != "frames":
                self.board.add_scalar(name, mean, frames)
        rate = (frames - self.first) / max(time.monotonic() - self.started, 1e-9)
        shown = "  ".join(
            f"{label} {mean:.3g}" for name, label in SHOWN.items() if (mean := average(record.get(name))) is not None
        )
        self._celebrate(average(record.get("return")), frames)
        self.progress.update(self.task, completed=min(frames, self.total), rate=rate, shown=shown)

    def _celebrate(self, mean: float | None, frames: int) -> None:
        """A line for each milestone the mean return of the training episodes passes."""
        passed = [m for m in MILESTONES if mean is not None and self.best < m <= mean]
        if passed:
            self.best = passed[-1]
            minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
            self.say(f"return {self.best} passed after {minutes}:{seconds:02d} min, {frames:,} frames ({mean:.1f})")

    def say(self, text: str) -> None:
        self.progress.console.print(text)


def _rewind(folder: Path, done: int) -> None:
    """Drop what a crash left behind the checkpoint a run continues from: it is played, and written, again."""
    path = folder / "log.jsonl"
    if not path.exists():
        return
    kept = [json.dumps(record) + "\n" for record in read(folder) if record["frames"] <= done]
    scratch = path.with_suffix(".partial")
    scratch.write_text("".join(kept), encoding="utf-8")
    scratch.replace(path)


def average(value: Any) -> float | None:
    """The mean over seeds of what is known; None where nothing is."""
    if isinstance(value, list):
        known = [x for x in value if x is not None]
        return sum(known) / len(known) if known else None
    return float(value) if isinstance(value, int | float) else None


def read(folder: Path) -> list[dict[str, Any]]:
    """All reports of a run, oldest first; a line cut off by a crash is left out."""
    records = []
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records
