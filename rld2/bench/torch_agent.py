"""The same update in PyTorch, twice: as one writes it first, and with the work-saving tricks of rld2.

first version        every reverse step runs on all B x M rows and modulates every row; actions are sampled at s' for
                     the TD target and again at s for the improvement; pairs to denoise come from the forward process
with the tricks      the first reverse step and the modulation are computed once per state; one sampling pass at s'
                     serves both; its chain provides the pairs, and the all-mask step is predicted once per state
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports] # noqa: N812

from rld2.agents.fkl import FKLState
from rld2.bench.problem import Draws, Problem
from rld2.bench.torch_networks import Denoiser, Networks, load
from rld2.losses.spread import RATE
from rld2.types import Batch

Tensor = Any
HALVINGS = 24  # of the temperature's bisection, as in losses.temperature.solve


class TorchBatch(NamedTuple):
    observation: Tensor
    next_observation: Tensor
    action: Tensor
    reward: Tensor
    factor: Tensor  # discount of the bootstrap; 0 after a termination


def torch_batch(batch: Batch, discount: float) -> TorchBatch:
    data = batch.data
    factor = np.where(data.terminated, 0.0, discount ** np.asarray(data.duration, np.float32))[:, 0]
    observation = np.asarray(data.observation, np.float32)
    arrays = observation[:, 0], observation[:, 1], np.asarray(data.action, np.int64)[:, 0], data.reward[:, 0], factor
    return TorchBatch(*(torch.tensor(np.ascontiguousarray(x)) for x in arrays[:3]), *map(_floats, arrays[3:]))


def _floats(x: Any) -> Tensor:
    return torch.tensor(np.asarray(x, np.float32))


class TorchAgent:
    """The learner's state and its `update`. `compiled`: the loss, sampling included, goes through torch.compile."""

    def __init__(self, problem: Problem, state: FKLState, *, tricks: bool, compiled: bool):
        self.sizes, self.config, self.tricks = problem.sizes, problem.config, tricks
        schedule = problem.config.policy.schedule_for(problem.sizes.K)
        self.alpha, self.abar = _floats(schedule.alpha), _floats(schedule.abar)
        self.chance = [float(x) for x in schedule.abar[:0:-1]]  # of unmasking, in drawing order
        self.mask = problem.sizes.spec.action.mask_token
        self.online = load(Networks(problem.sizes), state.online)
        self.target = load(Networks(problem.sizes), state.target).requires_grad_(False)
        how = problem.config.optimiser
        self.variance, self.batches = torch.zeros(()), torch.zeros(())  # of the targets, over batches
        self.parameters = list(self.online.parameters())
        self.optimiser = torch.optim.Adam(self.parameters, how.learning_rate, eps=how.adam_epsilon, fused=True)
        loss = self.loss_with_tricks if tricks else self.loss_first_version
        self.loss: Callable = torch.compile(loss, fullgraph=True, dynamic=False) if compiled else loss

    def draw(self) -> tuple[Draws, ...]:
        """Fresh random numbers: for one sampling pass with the tricks, for two without."""
        s, steps = self.sizes, self.sizes.steps
        shape = (s.B, s.M, s.K)

        def once() -> Draws:
            gumbel = torch.empty(steps, *shape, s.vocab).exponential_().log_().neg_()
            last = max(steps, 2) if self.tricks else steps + 1
            step = torch.randint(1, last, shape[:-1])
            return Draws(torch.rand(steps, *shape), gumbel, step, torch.rand(shape))

        return (once(),) if self.tricks else (once(), once())

    def update(self, batch: TorchBatch, draws: tuple[Draws, ...] | None = None) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(batch, *(self.draw() if draws is None else draws))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.optimiser.max_gradient_norm, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            private = cast(Any, torch)  # there is no public name for it
            private._foreach_lerp_(list(self.target.parameters()), self.parameters, self.config.target_rate)
        return loss.detach()

    def sample(self, denoiser: Denoiser, condition: Tensor, draws: Draws, once: bool) -> list[Tensor]:
        """The chain a^N ... a^0; `once`: the first prediction is shared by the samples of a state."""
        s = self.sizes
        tokens = torch.full((s.B, s.M, s.K), self.mask)
        chain = [tokens]
        for i, chance in enumerate(self.chance):
            logits = denoiser(tokens[:, :1] if once and i == 0 else tokens, condition)
            proposal = torch.argmax(logits + draws.gumbel[i], -1)
            tokens = torch.where((tokens == self.mask) & (draws.position[i] < chance), proposal, tokens)
            chain.append(tokens)
        return chain

    def weights(self, q: Tensor) -> Tensor:
        """softmax(q / lambda), with the lambda that spends the KL budget."""
        how = self.config.temperature
        scaled = q - q.amax(-1, keepdim=True)
        low = torch.log(torch.clamp(how.floor * q.std(correction=0), min=how.minimum))
        high = torch.full_like(low, np.log(how.maximum))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            log_weights = F.log_softmax(scaled / middle.exp(), -1)
            kl = (log_weights.exp() * log_weights).sum(-1).mean() + np.log(self.sizes.M)
            low, high = torch.where(kl > how.budget, middle, low), torch.where(kl > how.budget, high, middle)
        return F.softmax(q / high.exp(), -1)

    def improvement(self, terms: list[tuple[Tensor, Tensor, Tensor]], action: Tensor, weights: Tensor) -> Tensor:
        """Weighted ELBO and entropy bonus; a term is (logits, is_masked, weight of the draw)."""
        loss = 0.0
        for logits, is_masked, weight in terms:
            log_mu = F.log_softmax(logits, -1)
            spread = -(log_mu.exp() * log_mu).sum(-1)
            fit = log_mu.expand(*action.shape, -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
            loss = loss - (weights * weight * (fit * is_masked).sum(-1)).sum(-1).mean()
            loss = loss - self.config.entropy * (weight * (spread * is_masked).sum(-1)).mean()
        return loss

    def combined(self, batch: TorchBatch, embedding: Tensor, target: Tensor, actor: Tensor) -> Tensor:
        taken = self.online.critic(embedding, batch.action)
        with torch.no_grad():
            rate = (1.0 / (self.batches + 1.0)).clamp(min=RATE)
            self.variance.add_(rate * (target.var(correction=0) - self.variance))
            self.batches.add_(1.0)
        unit = self.variance.sqrt().clamp(min=self.config.target_floor)
        critic = F.huber_loss(taken / unit, target / unit, delta=self.config.huber)
        return critic + self.config.policy_weight * actor

    def loss_with_tricks(self, batch: TorchBatch, draws: Draws) -> Tensor:
        with torch.no_grad():
            old = self.target.torso(batch.next_observation).unsqueeze(1)
            chain = self.sample(self.target.denoiser, self.target.denoiser.body.condition(old), draws, once=True)
            action = chain[-1]
            q = self.target.critic(old, action)
            target = batch.reward + batch.factor * q.mean(-1)
            weights = self.weights(q)
            index = (self.sizes.steps - draws.step)[None, ..., None].expand(1, *action.shape)
            tokens = torch.stack(chain).gather(0, index)[0]
        embedding = self.online.torso(batch.next_observation).unsqueeze(1)
        condition = self.online.denoiser.body.condition(embedding)
        first = self.online.denoiser(chain[0][:, :1], condition)
        everything = torch.ones_like(first[..., 0])
        terms = [(first, everything, self.abar[-1])]
        if self.sizes.steps > 1:
            later = (self.sizes.steps - 1) * self.abar[draws.step]
            terms.append((self.online.denoiser(tokens, condition), tokens == self.mask, later))
        actor = self.improvement(terms, action, weights)
        return self.combined(batch, self.online.torso(batch.observation), target, actor)

    def loss_first_version(self, batch: TorchBatch, draws: Draws, more: Draws) -> Tensor:
        def rows(embedding: Tensor) -> Tensor:
            return embedding.unsqueeze(1).expand(-1, self.sizes.M, -1).contiguous()

        def proposals(observation: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
            old = rows(self.target.torso(observation))
            condition = self.target.denoiser.body.condition(old)
            action = self.sample(self.target.denoiser, condition, draws, once=False)[-1]
            return action, self.target.critic(old, action)

        with torch.no_grad():
            _, q_next = proposals(batch.next_observation, draws)
            target = batch.reward + batch.factor * q_next.mean(-1)
            action, q = proposals(batch.observation, more)
            weights = self.weights(q)
            is_masked = more.mask >= self.alpha[more.step].unsqueeze(-1)
            tokens = torch.where(is_masked, self.mask, action)
        embedding = self.online.torso(batch.observation)
        logits = self.online.denoiser(tokens, self.online.denoiser.body.condition(rows(embedding)))
        weight = self.sizes.steps * self.abar[more.step]
        actor = self.improvement([(logits, is_masked, weight)], action, weights)
        return self.combined(batch, embedding, target, actor)
