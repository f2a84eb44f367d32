"""The update of rld2 against the same update in PyTorch, the share of the machine's peak, and where the rest goes."""

import importlib.util
from typing import Any, NamedTuple

import jax

from rld2.bench import flops
from rld2.bench.parts import attention_calls, part_calls
from rld2.bench.problem import Problem, Sizes, make_problem
from rld2.bench.timing import SQUARE, Call, Timing, blocking, interleave, matmul_call
from rld2.runner.origin import cores

OURS, PEAK = "rld2", "matmul"
FIRST = {"eager": "PyTorch eager, first version", "compiled": "PyTorch compiled, first version"}
TRICKS = {"eager": "PyTorch eager, our tricks", "compiled": "PyTorch compiled, our tricks"}
SCANNED = 4  # updates in one program, as in training


class UpdateResult(NamedTuple):
    sizes: Sizes
    timings: dict[str, Timing]  # seconds per update; the matmul's per product
    parts: dict[str, Timing]
    peak: float  # operations a second

    @property
    def share_of_peak(self) -> float:
        return sum(flops.useful(self.sizes).values()) / self.timings[OURS].median / self.peak


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def our_call(problem: Problem) -> tuple[Call, int]:
    def train(state: Any, key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return problem.agent.update(state, problem.batch, key).state, None

        return jax.lax.scan(step, state, jax.random.split(key, SCANNED))[0]

    return blocking(jax.jit(train), problem.state, jax.random.key(1)), SCANNED


def torch_calls(problem: Problem) -> dict[str, tuple[Call, int]]:
    import torch  # pyright: ignore[reportMissingImports]

    from rld2.bench.torch_agent import TorchAgent, torch_batch

    torch.set_num_threads(cores())
    batch = torch_batch(problem.batch, problem.sizes.spec.discount)
    calls: dict[str, tuple[Call, int]] = {}
    for tricks, names in ((False, FIRST), (True, TRICKS)):
        agents = {how: TorchAgent(problem, problem.state, tricks=tricks, compiled=how == "compiled") for how in names}
        draws = agents["eager"].draw()
        losses = {how: agent.loss(batch, *draws).item() for how, agent in agents.items()}
        if abs(losses["compiled"] - losses["eager"]) > 1e-3 * abs(losses["eager"]):
            raise RuntimeError(f"torch.compile changes the loss: {losses}")
        calls |= {names[how]: ((lambda agent=agent: agent.update(batch)), 1) for how, agent in agents.items()}
    square = torch.randn(SQUARE, SQUARE)
    calls["PyTorch " + PEAK] = ((lambda: square @ square), 1)
    return calls


def measure(sizes: Sizes, repeats: int, profile: bool = True) -> UpdateResult:
    problem = make_problem(sizes)
    calls = {OURS: our_call(problem), PEAK: (matmul_call(), 1)}
    if has_torch():
        calls |= torch_calls(problem)
    inside = part_calls(problem) | attention_calls(problem) if profile else {}
    timings = interleave(calls | inside, repeats)
    fastest = min(timings[name].median for name in timings if name.endswith(PEAK))
    return UpdateResult(
        sizes,
        {name: timings[name] for name in calls},
        {name: timings[name] for name in inside},
        peak=2 * SQUARE**3 / fastest,
    )
