"""The loop for domains on the host: what it collects, when it learns from it, and how it fails."""

import dataclasses
import itertools
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.dqn import DQNConfig
from rld2.domains.base import VectorDomain
from rld2.experience.host import HostCollector
from rld2.experience.rollout import collect, start
from rld2.runner import checkpoint, log, run, train
from rld2.runner.config import TrainConfig
from rld2.runner.host_loop import CollectorError, build_host
from rld2.types import Acted, Agent, Batch, Domain, Replay, Rollout, Updated
from tests.tiny import Hosted, LegalWalk, Walk, scripted, tiny, walk_legal

SIZE, KEYS = 4, jax.random.key(0)[None]


def hosted(fails_after: int | None = None, **changes: Any) -> Hosted:
    return Hosted(VectorDomain(Walk(), SIZE, **{"step_cap": 6, **changes}), fails_after)


class Seen:
    """An agent that does not act on what it learns, but writes it down: a learner's state is the number of updates.

    Its actions name the policy they were played with (the number of updates, cut to what the environment knows).
    """

    def __init__(self, experience: Rollout | Replay):
        self.batches: list[Batch] = []
        self.experience = experience

    def agent(self) -> Agent:
        def act(policy, step, carry, key, how):
            place = step.observation[:, 0].astype(jnp.int32)
            action = jnp.stack([place % 3, place % 2], axis=-1)
            return Acted(action, memory=jnp.broadcast_to(policy, place.shape), carry=carry + 1)

        def update(state, batch, key):
            jax.debug.callback(self.batches.append, batch, ordered=True)
            priorities = None if batch.weight is None else jnp.ones_like(batch.weight)
            updates = state.astype(jnp.float32)
            return Updated(state + 1, {"updates": updates, "best_updates": updates}, priorities)

        return Agent(
            init=lambda key: jnp.zeros((), jnp.int32),
            policy=lambda state: state,
            act=act,
            update=update,
            experience=self.experience,
            carry=lambda num_envs: jnp.zeros(num_envs, jnp.int32),
        )


REPLAY = Replay(length=2, updates=3, batch_size=5, sequence=2, capacity=80, prefill=16, priority_exponent=0.5)


def running(loop, advances: int):
    state = loop.init(KEYS)
    for _ in range(loop.warm_iterations):
        state = loop.warm(state)
    reports = []
    for _ in range(advances):
        state, metrics = loop.advance(state)
        reports.append((metrics, jax.device_get(state.collector.episodes), int(state.frames[0])))
    jax.effects_barrier()
    return state, reports


def test_it_collects_what_the_compiled_loop_would():
    """`Walk` draws nothing but its start, which is set by the key: up to the first end, both play the same."""
    agent = scripted(lambda policy, o, legal, key: jnp.stack([o[:, 0] % 3, o[:, 1] % 2], -1).astype(jnp.int32))
    domain = Hosted(VectorDomain(Walk(goal=-1), SIZE, step_cap=6))
    key = jax.random.key(4)
    here = HostCollector(domain, agent, key)
    there = start(domain.inner, agent, key)
    got = here.collect(None, jax.random.key(1), 6)
    there, wanted = collect(domain.inner, agent, None, there, jax.random.key(1), 6)
    jax.tree.map(np.testing.assert_array_equal, got.data, jax.device_get(wanted))
    jax.tree.map(np.testing.assert_array_equal, got.episodes, there.episodes)
    assert got.episodes.ended == SIZE
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(got.data))


def test_the_carry_begins_anew_with_every_episode():
    seen = Seen(Rollout(1))
    agent = seen.agent()
    collector = HostCollector(Hosted(VectorDomain(Walk(goal=-1), SIZE, step_cap=3)), agent, jax.random.key(0))
    carries = []
    for i in range(8):
        collector.collect(jnp.zeros((), jnp.int32), jax.random.key(i), 1)
        carries.append(np.asarray(collector.groups[0].carry).tolist())
    assert carries == [[n] * SIZE for n in (1, 2, 3, 1, 2, 3, 1, 2)]


class InGroups(Hosted):
    """Some environments that need not wait for the others."""

    def __init__(self, *members: Hosted):
        super().__init__(VectorDomain(Walk(), sum(one.spec.num_envs for one in members), step_cap=6))
        self.members = members

    def groups(self) -> tuple[Hosted, ...]:
        return self.members


class Meeting(Hosted):
    """Steps only when all who were invited step too, and takes its time; counts its steps."""

    def __init__(self, inner: Domain, invited: threading.Barrier, seconds: float = 0.0):
        super().__init__(inner)
        self.invited, self.seconds, self.steps = invited, seconds, 0

    def step(self, state, action, key, active=None):
        self.invited.wait(timeout=60)
        time.sleep(self.seconds)
        self.steps += 1
        return super().step(state, action, key, active)


def few(size: int) -> VectorDomain:
    return VectorDomain(Walk(goal=2), size, step_cap=6)


def test_groups_play_as_they_would_alone():
    agent = scripted(lambda policy, o, legal, key: jax.random.randint(key, (len(o), 2), 0, 2))
    key, keys = jax.random.key(4), jax.random.split(jax.random.key(4), 2)
    collector = HostCollector(InGroups(Hosted(few(2)), Hosted(few(3))), agent, key)
    alone = [HostCollector(Hosted(few(n)), agent, k) for n, k in zip((2, 3), keys, strict=True)]
    for number in range(3):
        key = jax.random.key(number)
        both = collector.collect(None, key, 5)
        first, second = (one.collect(None, k, 5) for one, k in zip(alone, jax.random.split(key), strict=True))
        jax.tree.map(lambda x, a, b: np.testing.assert_array_equal(x[:, :2], a), both.data, first.data, second.data)
        jax.tree.map(lambda x, a, b: np.testing.assert_array_equal(x[:, 2:], b), both.data, first.data, second.data)
        np.testing.assert_array_equal(both.last_observation[:2], first.last_observation)
        np.testing.assert_array_equal(both.last_observation[2:], second.last_observation)
        assert both.episodes.ended == first.episodes.ended + second.episodes.ended
        assert both.episodes.ended_score == first.episodes.ended_score + second.episodes.ended_score
        np.testing.assert_array_equal(both.episodes.score[2:], second.episodes.score)
    collector.close()


def test_groups_play_at_the_same_time():
    agent = scripted(lambda policy, o, legal, key: jnp.zeros((len(o), 2), jnp.int32))
    barrier = threading.Barrier(2)
    members = [Meeting(few(n), barrier) for n in (2, 3)]
    HostCollector(InGroups(*members), agent, jax.random.key(0)).collect(None, jax.random.key(1), 3)
    assert [member.steps for member in members] == [3, 3]


def test_a_group_that_fails_stops_the_others():
    agent = scripted(lambda policy, o, legal, key: jnp.zeros((len(o), 2), jnp.int32))
    slow = Meeting(few(3), threading.Barrier(1), seconds=0.05)
    collector = HostCollector(InGroups(Hosted(few(2), fails_after=1), slow), agent, jax.random.key(0))
    with pytest.raises(OSError, match="the game is gone"):
        collector.collect(None, jax.random.key(1), 1000)
    assert slow.steps < 1000


@pytest.mark.parametrize("overlap", [False, True])
def test_every_piece_is_followed_by_its_updates(overlap: bool):
    """Ratios are exact with and without overlap; with it, a piece was played by the policy of one iteration before."""
    seen = Seen(REPLAY)
    domain = hosted()
    state, reports = running(build_host(domain, seen.agent(), iterations=4, overlap=overlap), 2)
    warm = SIZE * REPLAY.length * 2
    assert [frames for *_, frames in reports] == [warm + SIZE * 2 * 4 * n for n in (1, 2)]
    assert int(state.learner[0]) == len(seen.batches) == 2 * 4 * 3
    assert [int(batch.frames) for batch in seen.batches[::3]] == [warm + SIZE * 2 * n for n in range(1, 9)]
    assert [float(metrics["updates"][0]) for metrics, *_ in reports] == [5.5, 17.5]
    assert [float(metrics["best_updates"][0]) for metrics, *_ in reports] == [11.0, 23.0]
    for batch in seen.batches:
        assert batch.data.observation.shape == (5, 2, 2)
        assert batch.weight is not None
        newest = int(np.max(batch.data.memory))
        iteration = (int(batch.frames) - warm) // (SIZE * 2) - 1  # pieces of this many iterations were learned from
        assert newest <= max(0, 3 * (iteration - (1 if overlap else 0)))
    played = {int(x) for batch in seen.batches for x in np.ravel(batch.data.memory)}
    assert played <= {0, 3, 6, 9, 12, 15, 18, 21}
    assert len(played) > 3
    assert all(x.shape[:1] == (1,) for x in jax.tree.leaves(state))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_seed_means_one_run(overlap: bool):
    def run_once():
        seen = Seen(REPLAY)
        state, reports = running(build_host(hosted(), seen.agent(), iterations=3, overlap=overlap), 3)
        return jax.device_get(state.learner), seen.batches, [episodes for _, episodes, _ in reports]

    first, second = run_once(), run_once()
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_rollouts_are_learned_from_with_the_policy_that_played_them():
    seen = Seen(Rollout(5))
    domain = hosted()
    _, reports = running(build_host(domain, seen.agent(), iterations=3, overlap=True), 2)
    assert len(seen.batches) == 6
    for i, batch in enumerate(seen.batches):
        assert batch.data.observation.shape == (5, SIZE, 2)
        np.testing.assert_array_equal(batch.data.memory, i)
        np.testing.assert_array_equal(batch.last_observation[:, 0] >= 0, True)
    for before, after in itertools.pairwise(seen.batches):
        np.testing.assert_array_equal(before.last_observation, after.data.observation[0])
    ended = [episodes.ended for _, episodes, _ in reports]
    data = [batch.data for batch in seen.batches]
    wanted = [sum(np.sum(d.terminated | d.truncated) for d in data[i : i + 3]) for i in (0, 3)]
    np.testing.assert_array_equal(np.ravel(ended), wanted)


@pytest.mark.parametrize("overlap", [False, True])
def test_what_breaks_while_collecting_is_one_error(overlap: bool):
    seen = Seen(REPLAY)
    loop = build_host(hosted(fails_after=9), seen.agent(), iterations=50, overlap=overlap)
    state, reports = running(loop, 1)  # after warming with four steps there are pieces for two iterations
    assert len(seen.batches) == int(state.learner[0]) == 2 * 3
    assert reports[0][-1] == SIZE * (4 + 2 * 2)
    with pytest.raises(CollectorError, match=r"^collecting experience failed: OSError: the game is gone$") as caught:
        loop.advance(state)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(CollectorError, match="the game is gone"):  # nothing to report
        running(build_host(hosted(fails_after=5), seen.agent(), iterations=50, overlap=overlap), 1)


def test_sizes_that_cannot_work_are_refused_before_anything_is_played():
    experience = dataclasses.replace(REPLAY, capacity=8)
    with pytest.raises(ValueError, match=r"replay capacity 8 must hold the prefill \(16\)"):
        build_host(hosted(), Seen(experience).agent(), 1)
    said = build_host(hosted(), Seen(REPLAY).agent(), 1).check()
    assert said == "replay of 80 transitions: 0.00 GiB"
    assert build_host(hosted(), Seen(Rollout(1)).agent(), 1).check() is None


def test_what_is_legal_comes_along():
    """Into the replay, and to what is learned from it; memory is counted with it."""
    seen = Seen(REPLAY)
    domain = Hosted(VectorDomain(LegalWalk(), SIZE, step_cap=6))
    running(build_host(domain, seen.agent(), iterations=2), 1)
    for batch in seen.batches:
        legal = np.asarray(batch.data.legal)
        assert legal.shape == (5, 2, 2, 3)
        for place, row in zip(np.asarray(batch.data.observation)[..., 0].ravel(), legal.reshape(-1, 2, 3), strict=True):
            np.testing.assert_array_equal(row, walk_legal(LegalWalk(), int(place)))


# A whole run on the host, with a real learner.

DQN = DQNConfig(embedding=8, batch_size=8, collect_steps=2, updates=1, capacity=400, prefill=32, n_step=2)


def config(**changes: Any) -> TrainConfig:
    return tiny(agent=DQN, **{"frames": 300, **changes})


@pytest.mark.usefixtures("on_the_host")
def test_a_run_is_stopped_and_continued(tmp_path: Path):
    """Learner, keys and frames come back; the replay is filled again, by frames that count."""
    first = train.train(config(out=tmp_path / "run"), on_log=lambda record: False)
    assert not first.finished
    saved = run.restore(first.folder, first.setup)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), saved.learner, first.state.learner))
    assert (int(saved.frames[0]), checkpoint.latest(first.folder / run.CHECKPOINTS)) == (first.frames, first.frames)
    rest = train.train(config(out=tmp_path / "run"), resume=first.folder)
    assert rest.finished
    records = log.read(rest.folder)[1:]
    assert records[0]["frames"] > first.frames + 32
    assert {"return", "episodes", "critic_loss", "epsilon"} <= set(records[-1])
    assert {len(records[-1][name]) for name in ("return", "episodes", "critic_loss")} == {1}


@pytest.mark.usefixtures("on_the_host")
def test_seeds_are_runs_of_their_own(tmp_path: Path):
    with pytest.raises(ValueError, match=r"trains one seed, got seeds=3; start a run for each: --seed 5 to --seed 7"):
        train.train(config(out=tmp_path / "run", seed=5, seeds=3))
    assert not (tmp_path / "run").exists()
