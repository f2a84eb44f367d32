"""Training: advance, log, checkpoint, until the frames are used up or somebody says stop."""

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rld2.domains.registry import AnyEnv
from rld2.domains.rewards import Scores
from rld2.domains.sequences import SequenceDomain
from rld2.runner import checkpoint, log, run
from rld2.runner.config import SequenceConfig, TrainConfig
from rld2.runner.handover import Relay
from rld2.runner.host_loop import CollectorError
from rld2.runner.log import Logger
from rld2.runner.loop import LoopState
from rld2.runner.sequences import with_own_reward
from rld2.types import Metrics


class Trained(NamedTuple):
    """Where a run stands after `train`."""

    folder: Path
    frames: int
    finished: bool
    setup: run.Setup
    state: LoopState
    stopped: str | None = None  # by what; a finished run, too, may have been asked to


@contextmanager
def stop_requests() -> Iterator[Callable[[], str | None]]:
    """Turns Ctrl-C and SIGTERM into a question the loop asks between two programs; a second one stops at once."""
    asked: list[str] = []

    def remember(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, remember) for number in numbers]
    except ValueError:  # not in the main thread: signals are somebody else's
        yield lambda: None
        return
    try:
        yield lambda: asked[0] if asked else None
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def train(
    config: TrainConfig,
    env: AnyEnv | Scores | None = None,
    *,
    resume: Path | None = None,
    on_log: Callable[[dict[str, Any]], bool | None] | None = None,
) -> Trained:
    """Run `config`, or continue the run in the folder `resume` with it. `env` is the user's own environment, or, where
    sequences are designed, a function from sequences to scores. `on_log` sees each report; False stops the run.

    Stopped in any way, the run is checkpointed where it stands and `resume` continues it bit for bit; on a host domain
    it continues with new episodes and a replay that is filled again. Where collecting fails (a reward raises, a game
    breaks), what was learned up to then is saved, and the error goes on.
    """
    if env is not None and isinstance(config.agent, SequenceConfig):
        config = dataclasses.replace(config, agent=with_own_reward(config.agent))
    phase = 0 if resume is None else run.phase_at(resume)
    setup = run.set_up(config, env, phase)
    run.check_start(config.agent)
    needs = setup.loop.check()
    folder = run.create(config) if resume is None else resume
    checkpoints = folder / run.CHECKPOINTS
    anew = resume is None or checkpoint.latest(checkpoints) is None
    state = setup.loop.init(setup.keys) if anew else run.restore(folder, setup)
    done = int(np.mean(state.frames))
    with Logger(folder, config.frames, done) as logger, stop_requests() as asked:
        last, more = config.seed + config.seeds - 1, whole_groups(setup.loop.group, done, config.frames)
        logger.say(f"{config.name}: {config.frames:,} frames{more}, seeds {config.seed}..{last}, in {folder}")
        if needs is not None:
            logger.say(needs)
        fills = done < config.frames and (anew or not setup.domain.spec.traceable)
        for _ in range(setup.loop.warm_iterations if fills else 0):
            state = setup.loop.warm(state)
            if stop := asked():  # there is nothing to save yet: what goes on later fills its replay again
                logger.say(f"stopped by {stop} before it learned; continue with: rld2 train --resume {folder}")
                setup.loop.close()
                return Trained(folder, done, False, setup, state, stop)
        frames = saved = int(np.mean(state.frames))
        earlier = [] if anew else log.read(folder)
        before = earlier[-1] if earlier else {}
        started, stop = time.monotonic() - before.get("seconds", 0.0), None  # a continued run's clock goes on
        if isinstance(setup.domain, SequenceDomain):
            setup.domain.go_on(before)
        relay = Relay(config, folder, phase, earlier)
        while frames < config.frames:
            try:
                state, metrics = setup.loop.advance(state, setup.loop.line(config.frames - frames))
            except CollectorError:
                if frames > saved:
                    checkpoint.save(checkpoints, frames, state)
                if checkpoint.latest(checkpoints) is not None:
                    logger.say(f"failed after {frames:,} frames; continue with: rld2 train --resume {folder}")
                raise
            frames = int(np.mean(state.frames))
            record = report(state, metrics, frames, time.monotonic() - started)
            logger.write(record)
            handover = relay.due(record)
            if handover:
                setup.loop.close()
                setup, state = relay.pass_on(state, frames, env)
                logger.say(f"reverse KL takes over at {frames:,} frames")
            stop = asked() or ("on_log" if on_log is not None and on_log(record) is False else None)
            if stop or handover or frames >= config.frames or frames - saved >= config.checkpoint_frames:
                checkpoint.save(checkpoints, frames, state)
                saved = frames
            if stop:
                logger.say(f"stopped by {stop} at {frames:,} frames; continue with: rld2 train --resume {folder}")
                break
    setup.loop.close()
    return Trained(folder, frames, frames >= config.frames, setup, state, stop)


def whole_groups(group: int | None, done: int, frames: int) -> str:
    """What to say of a design that goes on at `done` frames, if it has to ask for more rewards than `frames`."""
    over = 0 if group is None else max(0, frames - done) % group
    if group is None or not over:
        return ""
    return f" ({frames - over + group:,} in whole groups of {group}, see --domain.num-envs)"


def report(state: LoopState, metrics: Metrics, frames: int, seconds: float) -> dict[str, Any]:
    """One line of the log; lists have one entry a seed. Returns are of episodes that ended since the last line."""
    episodes = jax.device_get(state.collector.episodes)

    def per_episode(total: np.ndarray) -> list[float | None]:
        return [round(float(t / n), 4) if n else None for t, n in zip(total, episodes.ended, strict=True)]

    record: dict[str, Any] = {
        "frames": frames,
        "seconds": round(seconds, 2),
        "return": per_episode(episodes.ended_score),
        "episode_length": per_episode(episodes.ended_length),
        "episodes": [int(n) for n in episodes.ended],
    }
    return record | {name: [round(float(x), 6) for x in value] for name, value in jax.device_get(metrics).items()}
