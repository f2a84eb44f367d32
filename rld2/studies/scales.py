"""The two scales of every study. They share each line of it but the configs, which come from here."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rld2.agents.fkl import FKLConfig
from rld2.agents.rkl import RKLConfig
from rld2.presets import preset
from rld2.runner.config import TrainConfig, vary


class Scale(NamedTuple):
    """Where a study plays, how long, how often."""

    domain: str
    games: tuple[str, ...]  # on which a variant of the method is studied
    seeds: int
    frames: int
    presets: Mapping[str, str]  # of a method, where it has another name
    head_width: int  # of a transformer that grows by heads
    piece: int = 0  # of reverse KL's gradient: in a study a run has one core
    few_frames: bool = False  # so few that collections count frames: any macro length is then learned from as often

    def config(
        self, method: str, game: str, *, length: int | None = None, frames: int | None = None, **changes: Any
    ) -> TrainConfig:
        """A method's preset on a game. With another macro length, n-step returns span the same time; with few frames,
        collections, the replay and what fills it before the first update hold as many frames as well."""
        base = preset(f"{self.domain}/{game}/{self.presets.get(method, method)}")
        if isinstance(base.agent, RKLConfig) and self.piece:
            changes = {"agent__piece": self.piece, **changes}
        if length is not None:
            changes = {"domain__macro": length, **changes}
            if isinstance(base.agent, FKLConfig):
                changes = {"agent__n_step": max(1, base.agent.n_step * base.domain.macro // length), **changes}
            if self.few_frames:

                def as_many_frames(number: int) -> int:
                    return number * base.domain.macro // length

                changes = {"domain__num_envs": as_many_frames(base.domain.num_envs), **changes}
                if isinstance(base.agent, FKLConfig):
                    sizes = {"agent__prefill": base.agent.prefill, "agent__capacity": base.agent.capacity}
                    changes = {**{name: as_many_frames(size) for name, size in sizes.items()}, **changes}
        return vary(base, frames=self.frames if frames is None else frames, **changes)


# The paper averages over ten games and does not say which; these are ours, of many kinds.
TEN_GAMES = (
    *("asterix", "beam_rider", "breakout", "enduro", "ms_pacman"),
    *("pong", "qbert", "seaquest", "space_invaders", "up_n_down"),
)
_BASELINES = ("rkl", "dqn", "dqn-macro", "impala", "impala-macro", "ppo")
PAPER_PRESETS = {"fkl": "paper", **{method: f"paper-{method}" for method in _BASELINES}}
SCALES = {
    "two-core": Scale("minatar", ("breakout",), 3, 300_000, {}, 16, piece=32, few_frames=True),
    "paper": Scale("atari", TEN_GAMES, 3, 100_000_000, PAPER_PRESETS, 80),
}
