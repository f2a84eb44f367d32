"""Forward KL first, reverse KL after it: one learns fast, the other is better in the end (the paper's football)."""

from dataclasses import dataclass, field, replace
from typing import Any

from rld2.agents.actor_critic import ActorCriticState
from rld2.agents.fkl import FKLConfig, FKLState
from rld2.agents.rkl import RKLConfig


@dataclass(frozen=True)
class RelayConfig:
    """Two agents with one policy. Rates and bonuses that change do so over the frames of the whole run."""

    fkl: FKLConfig = field(default_factory=FKLConfig)
    rkl: RKLConfig = field(default_factory=RKLConfig)
    share: float = 0.5  # of the run's frames after which reverse KL takes over at the latest
    patience: float | None = None  # or before, once so large a share of the run has brought no better return

    def __post_init__(self) -> None:
        if self.fkl.policy != self.rkl.policy:
            raise ValueError("fkl.policy and rkl.policy must be the same: it is one policy that is handed over")
        if self.rkl.central_value or self.fkl.plan > 1:
            raise ValueError("what forward KL hands over is a policy without a plan and a value without a centre")
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")
        if self.patience is not None and not 0.0 < self.patience < 1.0:
            raise ValueError(f"patience must be None or a share of the run between 0 and 1, got {self.patience}")

    @property
    def phases(self) -> tuple[FKLConfig, RKLConfig]:
        return replace(self.fkl, learn_value=True), self.rkl

    def is_over(self, history: list[tuple[int, float]], total_frames: int) -> bool:
        """Whether forward KL has done its part: `history` has frames and mean return of every report so far."""
        frames = history[-1][0]
        if frames >= self.share * total_frames:
            return True
        if self.patience is None:
            return False
        best = max(history, key=lambda at: at[1])[0]
        return frames - best >= self.patience * total_frames


def hand_over(before: FKLState, fresh: ActorCriticState) -> ActorCriticState:
    """Reverse KL's first state, with the policy and the value that forward KL has learned."""
    value: Any = before.online.value
    networks = replace(fresh.networks, policy=before.online.policy, head=value)
    return fresh._replace(networks=networks)
