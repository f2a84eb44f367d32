"""Atari games through the Arcade Learning Environment (extra `atari`, GPL-2: imported only when asked for).

Every environment is a vector environment of one game with a thread of its own. ALE's vector of many takes an action for
each game at every step, so that none can hold while others go on; these can, at the end of an episode inside a
macro-action or when they are told to.
"""

import importlib
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from rld2.types import ActionSpec, EnvSpec, TimeStep

GAMES = (
    *("alien", "amidar", "assault", "asterix", "asteroids", "atlantis", "bank_heist", "battle_zone"),
    *("beam_rider", "berzerk", "bowling", "boxing", "breakout", "centipede", "chopper_command"),
    *("crazy_climber", "defender", "demon_attack", "double_dunk", "enduro", "fishing_derby", "freeway"),
    *("frostbite", "gopher", "gravitar", "hero", "ice_hockey", "jamesbond", "kangaroo", "krull"),
    *("kung_fu_master", "montezuma_revenge", "ms_pacman", "name_this_game", "phoenix", "pitfall", "pong"),
    *("private_eye", "qbert", "riverraid", "road_runner", "robotank", "seaquest", "skiing", "solaris"),
    *("space_invaders", "star_gunner", "surround", "tennis", "time_pilot", "tutankham", "up_n_down", "venture"),
    *("video_pinball", "wizard_of_wor", "yars_revenge", "zaxxon"),
)
SIDE, STACK, SKIP, NOOPS = 84, 4, 4, 30
FOREVER = 2**30  # frames: the cap is counted here, as ALE's own shows an old frame where it cuts an episode


class Game:
    """One game being played, in a thread of its own: `send` an action, then `receive` what came of it."""

    def __init__(self, make: Any, seed: int):
        self.env = make()
        self._begin(*self.env.reset(seed=seed))

    def _begin(self, stack: np.ndarray, info: dict[str, np.ndarray]) -> None:
        self.stack, self.lives, self.actions = stack[0], int(info["lives"][0]), 0

    def send(self, action: int) -> None:
        self.env.send(np.full(1, action, np.int32))

    def receive(self) -> tuple[float, bool, bool]:
        """Reward, whether the game is over, and whether a life was lost though it goes on."""
        stack, reward, over, _, info = self.env.recv()
        lives, self.stack = int(info["lives"][0]), stack[0]
        lost, self.lives, self.actions = 0 < lives < self.lives, lives, self.actions + 1
        return float(reward[0]), bool(over[0]), lost

    def receive_new(self) -> None:
        """The first stack of the next game, which ALE begins at the first action sent after the end of one."""
        stack, _, _, _, info = self.env.recv()
        self._begin(stack, info)

    def restart(self) -> None:
        self._begin(*self.env.reset())


class Atari:
    """`num_envs` games with the usual preprocessing: 84 x 84 grey, each action for four frames, the brighter of the
    last two, a stack of four, up to 30 idle frames at the start.

    A primitive step is one action of the agent, hence four frames of the game. Randomness (idle frames, `sticky`: the
    chance, at every frame, that the action before is repeated) is the emulator's own, seeded by the key of `reset`.
    `life_loss`: a lost life ends the learner's episode, the game goes on. `clip_rewards`: to -1..1, for the learner
    only. `step_cap` truncates a game: 27,000 actions are the usual 108,000 frames. With `macro`, an action is the next
    K ones, played open-loop; a game that ends waits for the others before anything is done in the next one.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        macro: int = 1,
        sticky: float = 0.25,
        minimal: bool = True,
        life_loss: bool = False,
        clip_rewards: bool = False,
        step_cap: int | None = None,
        discount: float = 0.99,
    ):
        if game not in GAMES:
            raise ValueError(f"Atari game must be one of {list(GAMES)}, got {game!r}")
        try:
            ale, vector = importlib.import_module("ale_py"), importlib.import_module("ale_py.vector_env")
        except ImportError as error:
            raise ValueError(f"Atari game {game!r} needs the extra 'atari': pip install 'rld2[atari]'") from error
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
        console = ale.ALEInterface()
        console.loadROM(ale.roms.get_rom_path(game))
        actions = console.getMinimalActionSet() if minimal else console.getLegalActionSet()
        self.action_names = tuple(action.name.lower() for action in actions)
        self.macro, self.step_cap = macro, step_cap
        self.life_loss, self.clip_rewards = life_loss, clip_rewards
        self.make = lambda: vector.AtariVectorEnv(
            game,
            1,
            max_num_frames_per_episode=FOREVER,
            repeat_action_probability=sticky,
            full_action_space=not minimal,
            img_height=SIDE,
            img_width=SIDE,
            stack_num=STACK,
            frameskip=SKIP,
            noop_max=NOOPS + 1,  # ALE draws below it
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.spec = EnvSpec(
            name=f"atari/{game}",
            observation=jax.ShapeDtypeStruct((SIDE, SIDE, STACK), np.uint8),
            action=ActionSpec((len(actions),) * macro),
            num_envs=num_envs,
            traceable=False,
            can_truncate=step_cap is not None,
            discount=discount,
        )

    def reset(self, key: Key[Array, ""]) -> tuple[list[Game], TimeStep]:
        seeds = np.asarray(jax.random.randint(key, (self.spec.num_envs,), 0, 2**31 - 1))
        games = [Game(self.make, int(seed)) for seed in seeds]
        counts = _Counts(len(games))
        observation = _stacks(games)
        return games, counts.step(observation, self._finals(observation, {}))

    def step(
        self,
        state: list[Game],
        action: Int[Array | np.ndarray, "e k"],
        key: Key[Array, ""] | None = None,
        active: Bool[Array | np.ndarray, " e"] | None = None,
    ) -> tuple[list[Game], TimeStep]:
        """The games are changed in place; `key` is not looked at, see above."""
        low, high, largest = int(np.min(action)), int(np.max(action)), self.spec.action.vocab - 1
        if low < 0 or high > largest:  # ALE would wait for ever
            raise ValueError(f"actions must be in 0..{largest}, got {low}..{high}")
        plan = np.asarray(action).tolist()
        counts, last = _Counts(len(state)), {}
        playing = [i for i in range(len(state)) if active is None or active[i]]
        beginning: list[int] = []
        for i in playing:
            state[i].send(plan[i][0])
        for k in range(self.macro):
            still = []
            for i in playing:
                game = state[i]
                gain, over, lost = game.receive()
                counts.score[i] += gain
                counts.reward[i] += self.spec.discount**k * (np.clip(gain, -1.0, 1.0) if self.clip_rewards else gain)
                counts.duration[i] = k + 1
                capped, terminated = game.actions == self.step_cap, over or (self.life_loss and lost)
                counts.terminated[i], counts.truncated[i] = terminated, capped and not terminated
                if over:
                    last[i] = game.stack
                    beginning.append(i)
                    game.send(0)
                elif capped:
                    last[i] = game.stack
                    game.restart()
                elif k + 1 < self.macro and not terminated:
                    game.send(plan[i][k + 1])
                    still.append(i)
            playing = still
        for i in beginning:
            state[i].receive_new()
        observation = _stacks(state)
        return state, counts.step(observation, self._finals(observation, last))

    def _finals(self, observation: np.ndarray, last: dict[int, np.ndarray]) -> np.ndarray | None:
        if not self.spec.can_truncate or not last:
            return observation if self.spec.can_truncate else None
        final = observation.copy()
        for i, stack in last.items():
            final[i] = np.moveaxis(stack, 0, -1)
        return final


class _Counts:
    """What a step comes to, game by game."""

    def __init__(self, size: int):
        self.reward: Any = np.zeros(size, np.float32)
        self.score: Any = np.zeros(size, np.float32)
        self.terminated: Any = np.zeros(size, bool)
        self.truncated: Any = np.zeros(size, bool)
        self.duration: Any = np.zeros(size, np.int32)

    def step(self, observation: np.ndarray, final: np.ndarray | None) -> TimeStep:
        return TimeStep(observation, **vars(self), final_observation=final, legal=None)


def _stacks(games: list[Game]) -> np.ndarray:
    """A view: in memory the frames of a stack stay one after the other, as ALE gives them."""
    return np.moveaxis(np.stack([game.stack for game in games]), 1, -1)
