"""What a trained run is worth: scores against random play, a learning curve, a film."""

import json
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from rld2.domains.football.scenarios import ACADEMY
from rld2.domains.registry import AnyEnv, make_domain
from rld2.report.atari_scores import with_human_scale
from rld2.report.plots import learning_curve
from rld2.report.tables import ARCADE, over_seeds, score_table
from rld2.report.win_rate import best_mean
from rld2.runner import log, run
from rld2.runner.config import TrainConfig, how_to_act
from rld2.runner.evaluate import evaluator, random_agent, with_envs
from rld2.runner.loop import LoopState
from rld2.runner.replay import record_play, render
from rld2.runner.train import Trained
from rld2.types import ActSpec

FINALE_SEED = 1_000  # of evaluations and films: no training run draws from it


def evaluate(
    config: TrainConfig,
    setup: run.Setup,
    state: Any,
    *,
    episodes: int = 100,
    step_cap: int | None = 10_000,
    how: ActSpec | None = None,
    seed: int = FINALE_SEED,
    env: AnyEnv | None = None,
) -> list[dict[str, Any]]:
    """Rows of the score table: one a seed, all seeds together, and random play on the same domain."""
    domain = make_domain(with_envs(config.domain, episodes, step_cap), env)
    key = jax.random.key(seed)
    play = evaluator(domain, setup.agent, how_to_act(config) if how is None else how, episodes)
    rows: list[dict[str, Any]] = []
    for index in range(config.seeds):
        result = play(run.policy_of(setup, state, index), jax.random.fold_in(key, index))
        rows.append({"seed": config.seed + index, **result.summary()})
    if config.seeds > 1:
        mean, low, high = over_seeds([row["mean"] for row in rows])
        everything = {"episodes": episodes * config.seeds, "mean": mean, "low": low, "high": high}
        for name in ("capped_share", "mean_length"):
            everything[name] = sum(row[name] for row in rows) / len(rows)
        rows.append({"seed": "all", **everything})
    floor = evaluator(domain, random_agent(setup.agent, domain), None, episodes)
    rows.append({"seed": "random play", **floor(None, key).summary()})
    return with_human_scale(rows, config.domain.name)


def _write_json(path: Path, record: Any) -> None:
    scratch = path.with_suffix(".partial")
    scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)


def describe(config: TrainConfig, frames: int, step_cap: int | None) -> str:
    """Everything a score must be quoted with."""
    parts = [config.name, f"{frames:,} frames", f"K = {config.domain.macro}"]
    if config.domain.name.startswith(ARCADE):
        parts += [f"sticky {config.domain.sticky:g}", f"{config.domain.actions} actions"]
    return ", ".join([*parts, "no step cap" if step_cap is None else f"step cap {step_cap:,}"])


def score(
    folder: Path,
    episodes: int,
    step_cap: int | None,
    sampler: str | None,
    steps: int | None,
    seed: int,
    console: Console,
    trained: Trained | None = None,
    out: Path | None = None,
) -> list[dict[str, Any]]:
    """Evaluate a run folder, print the table, and save it to `out` (None: evaluation.json in the folder)."""
    config = run.read_config(folder)
    setup, state = _opened(folder, config, trained)
    frames = int(state.frames.mean())
    with console.status(f"playing {episodes} episodes a seed ..."):
        how = how_to_act(config, sampler, steps)
        rows = evaluate(config, setup, state, episodes=episodes, step_cap=step_cap, how=how, seed=seed)
    name = sampler or config.evaluation_sampler or "as trained"
    console.print(score_table(rows, f"{describe(config, frames, step_cap)}, {name} sampler"))
    record = {"run": config.name, "frames": frames, "step_cap": step_cap, "sampler": name, "steps": steps}
    if config.domain.name.startswith("football/") and (best := best_mean(log.read(folder))) is not None:
        console.print(
            f"scores are win rates; greatest of training (the paper's statistic): {best.mean:.3f}, over "
            f"{best.episodes} episodes up to frame {best.frames:,}"
        )
        record["greatest_of_training"] = best._asdict()
    domain = {"macro": config.domain.macro, "sticky": config.domain.sticky, "actions": config.domain.actions}
    _write_json(out or folder / "evaluation.json", record | domain | {"rows": rows})
    return rows


def film(
    folder: Path,
    path: Path,
    decisions: int | None,
    fps: int,
    sampler: str | None,
    steps: int | None,
    index: int,
    seed: int,
    trained: Trained | None = None,
) -> None:
    """Record one episode of seed number `index` of the run and write it to `path` (.gif or .mp4)."""
    config = run.read_config(folder)
    if decisions is None:
        decisions = ACADEMY if config.domain.name.startswith("football/") else 60
    setup, state = _opened(folder, config, trained)
    policy = run.policy_of(setup, state, index)
    how = how_to_act(config, sampler, steps)
    recording = record_play(setup, policy, jax.random.key(seed), config=config, macro_steps=decisions, how=how)
    render(recording, path, fps)


def _opened(folder: Path, config: TrainConfig, trained: Trained | None) -> tuple[run.Setup, LoopState]:
    if trained is not None:
        return trained.setup, trained.state
    setup = run.set_up(config, phase=run.phase_at(folder))
    return setup, run.restore(folder, setup)


def conclude(trained: Trained, config: TrainConfig, console: Console) -> None:
    """The end of `rld2 train`: score table, learning curve, replay; and how to go on."""
    folder = trained.folder
    cap = config.evaluation_step_cap
    rows = score(folder, config.evaluation_episodes, cap, None, None, FINALE_SEED, console, trained)
    floor = rows[-1]["mean"]
    final = rows[-2] if config.seeds > 1 else rows[0]
    curve = folder / "curve.png"
    learning_curve(
        log.read(folder), curve, title=config.name, random_score=floor, evaluation=final | {"frames": trained.frames}
    )
    console.print(f"learning curve  {curve}")
    with console.status("filming ..."):
        decisions = None if config.domain.name.startswith("football/") else 40
        film(folder, folder / "replay.gif", decisions, 8, None, None, 0, FINALE_SEED, trained)
    console.print(f"replay          {folder / 'replay.gif'}")
    console.print(f"next            rld2 evaluate {folder} | rld2 export {folder} | tensorboard --logdir {folder}")
