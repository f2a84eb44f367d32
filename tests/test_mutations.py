"""Does every formula's test bite? Each formula is broken in a copy of the package, and the test named must fail.

Two copies run at a time; on two idle cores all of it takes about six minutes.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from tests.forked import Ended, pytest_in

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    file: str
    formula: str  # stands exactly once in the file
    broken: str
    test: str  # in the test module of that file, unless it names another


SCHEDULE, FORWARD, ELBO = "diffusion/schedule.py", "diffusion/forward.py", "diffusion/elbo.py"
SAMPLE, KL, TEMPERATURE, RETURNS = "diffusion/sample.py", "losses/kl.py", "losses/temperature.py", "losses/returns.py"
HEADS, TRANSFORMER, TORSO, FLAT = (f"networks/{name}.py" for name in ("heads", "transformer", "torso", "mlp"))
FKL, RKL, OPTIMISE, BOOTSTRAP = (f"agents/{name}.py" for name in ("fkl", "rkl", "optimise", "bootstrap"))
DQN, IMPALA, R2D2, SEQUENCES = (f"agents/{name}.py" for name in ("dqn", "impala", "r2d2", "sequences"))
VTRACE, RECURRENT = "losses/vtrace.py", "networks/recurrent.py"
SEQUENCE_ERRORS = "agents/test_sequences.py::test_r2d2_learns_from_the_errors"
AGGREGATE, COMPARE = "report/aggregate.py", "report/compare.py"
GUIDANCE, PARTICLES, GUIDED = "diffusion/guidance.py", "diffusion/particles.py", "diffusion/test_guidance.py::"
CRITIC = "agents/test_sequence_critic.py::"
ORACLE = "agents/test_oracle.py::test_an_oracle_"
DESIGNED = "agents/test_sequence_design.py::test_"
FINETUNE, DESIGN = "agents/finetune.py", f"{DESIGNED}fine_tuning_"
GRID, IMAGE = (f"networks/test_torso.py::test_the_{kind}_torso" for kind in ("grid", "image"))
IMAGE_AS_IT_IS = "self.convolutions, x.reshape(-1, *x.shape[-3:])"
LAW = "diffusion/test_sample.py::test_every_step_has_the_enumerated_law"

MUTATIONS = [
    Mutation(SCHEDULE, "1.0 - self.masked[:-1] / self.masked[1:]", "1.0 - self.masked[:-1]", "test_linear_abar"),
    Mutation(SCHEDULE, "masked[-1] = 0.0, 1.0", "masked[-1] = 0.0, 0.999", "test_ends_are_exact"),
    Mutation(SCHEDULE, "** (length - count)", "** length", "test_count_weights_sum"),
    Mutation(SCHEDULE, "weights[:, 0] = 0.0", "weights[:, 0] += 0.0", "test_count_weights_sum"),
    Mutation(SCHEDULE, "np.ceil(", "np.floor(", "test_masked_counts"),
    Mutation(SCHEDULE, "np.cos(0.5 * np.pi", "np.cos(0.4 * np.pi", "test_known_curves"),
    Mutation(FORWARD, ">= alpha[..., None]", "< alpha[..., None]", "test_masks_have_the_forward_marginals"),
    Mutation(FORWARD, "rank < count", "rank <= count", "test_masks_of_a_size"),
    Mutation(FORWARD, "[abar * mean,", "[mean,", "test_posterior_is_bayes_rule"),
    Mutation(ELBO, "jnp.where(is_masked, token_log_prob", "jnp.where(True, token_log_prob", "test_one_draw_estimates"),
    Mutation(ELBO, "schedule.steps * jnp.asarray", "1.0 * jnp.asarray", "test_one_draw_estimates_the_elbo[step]"),
    Mutation(ELBO, "weights.sum(), jnp.float32", "1.0, jnp.float32", "test_one_draw_estimates_the_elbo[count]"),
    Mutation(
        ELBO,
        "weight = jnp.asarray(schedule.abar, jnp",
        "weight = jnp.ones_like(schedule.abar, jnp",
        "test_sum_over_steps",
    ),
    Mutation(ELBO, "jnp.asarray(schedule.abar[1:, None] * chance", "jnp.asarray(chance", "test_elbo_and_likelihood"),
    Mutation(ELBO, "1.0 / (counts * chance)", "1.0 / chance", "test_draws_of_any_order"),
    Mutation(ELBO, "jax.random.permutation(key_order, number)", "jnp.arange(number)", "test_every_row_of_a_batch"),
    Mutation(ELBO, "jax.random.uniform(key_count)", "0.5", "test_every_row_of_a_batch"),
    Mutation(ELBO, "stay * np.log1p(-abar)", "0.0 * stay", "test_elbo_and_likelihood"),
    Mutation(ELBO, "leave * np.log(abar)", "0.0 * leave", "test_exact_conditionals_do_not"),
    Mutation(SAMPLE, "own * (1.0 - masked_from)) / masked_from", "own * (1.0 - masked_from))", LAW + "[3-ancestral]"),
    Mutation(SAMPLE, "+ own * (1.0 - masked_from)", "", LAW + "[5-cap]"),
    Mutation(SAMPLE, "return sampler.eta * largest", "return sampler.eta + 0.0 * largest", LAW + "[5-rescale]"),
    Mutation(SAMPLE, "-jnp.exp(confidence)), axis", "jnp.exp(confidence)), axis", LAW + "[5-conf]"),
    Mutation(SAMPLE, "(unmask, log_prob, confidence)", "(unmask, 0.0, confidence)", LAW + "[5-conf]"),
    Mutation(SAMPLE, "own = 0.0 if sampler.remask", "own = sigma if sampler.remask", LAW + "[5-conf]"),
    Mutation(SAMPLE, "np.where(masked_from == masked_to, strength, 0.0)", "strength", LAW + "[5-loop]"),
    Mutation(SAMPLE, "warped = np.where(inside, sampler.loop_on, warped)", "", LAW + "[5-loop]"),
    Mutation(SAMPLE, "score = jnp.max(log_mu, axis=-1)", "score = -jnp.max(log_mu, axis=-1)", LAW + "[3-greedy]"),
    Mutation(SAMPLE, '"greedy" else noise', '"greedy" else jnp.max(log_mu, -1)', LAW + "[3-one-by-one]"),
    Mutation(
        SAMPLE,
        "log_mu = jax.nn.log_softmax(restrict(logits, kept))",
        "log_mu = jax.nn.log_softmax(logits)",
        LAW + "[2-top-p]",
    ),
    Mutation(SAMPLE, "(reached_before < top_p)", "(reached_before + ranked < top_p)", "test_top_p_set_is_the_smallest"),
    Mutation(SAMPLE, "else legal & spec.valid", "else jnp.asarray(spec.valid)", "test_illegal_and_padded"),
    Mutation(
        SAMPLE, "drawn = jnp.where(unmask, log_prob, 0.0)", "drawn = log_prob", "test_log_prob_is_of_the_drawn_tokens"
    ),
    Mutation(SAMPLE, "(num_states, 1))).astype(jnp.float32)", "(num_states, 1)))", "test_sampling_is_in_float32"),
    Mutation(SAMPLE, "predict(start[:, :1], ", "predict(start, ", "test_first_step_is_predicted_once"),
    Mutation(SAMPLE, "jnp.where(log_mu > ILLEGAL_LOGIT / 2, log_mu, 0.0)", "1.0", "test_entropy_ignores"),
    Mutation(KL, "jax.nn.softmax(advantage / temperature", "jax.nn.softmax(advantage", "test_weights_are_the_mirror"),
    Mutation(KL, "best / jnp.sum(best, axis=-1, keepdims=True)", "1.0 * best", "test_without_temperature"),
    Mutation(KL, "jax.lax.stop_gradient(weights) * elbo", "weights * elbo", "test_states_left_out"),
    Mutation(KL, "jnp.sum(per_state * include)", "jnp.sum(per_state)", "test_states_left_out"),
    Mutation(KL, "(schedule.steps - step)[None", "(step - 1)[None", "test_pairs_are_steps_of_the_chain"),
    Mutation(KL, "jnp.asarray(steps - 1, jnp.float32)", "jnp.asarray(steps, jnp.float32)", "test_the_first_step_apart"),
    Mutation(KL, "jnp.where(is_unmasked, ratio, 0.0)", "jnp.where(is_masked, ratio, 0.0)", "test_log_ratio_is_that_of"),
    Mutation(KL, "kl=abar * jnp.sum", "kl=jnp.sum", "test_step_kl_is_the_enumerated_one"),
    Mutation(KL, "mu = jnp.exp(log_mu)", "mu = jnp.exp(log_old)", "test_step_kl_is_the_enumerated_one"),
    Mutation(
        KL,
        "abar = jnp.asarray(schedule.abar, jnp.float32)[step]",
        "abar = jnp.asarray(schedule.abar, jnp.float32)[step - 1]",
        "test_summed_step_kl",
    ),
    Mutation(KL, "restrict(old_logits, kept)", "old_logits", "test_kept_sets_restrict"),
    Mutation(KL, "return jnp.minimum(ratio", "return jnp.maximum(ratio", "test_clipping"),
    Mutation(KL, "-surrogate + temperature", "surrogate + temperature", "test_gradient_at_the_old_policy"),
    Mutation(TEMPERATURE, "+ math.log(weights.shape[-1])", "", "test_solution_spends"),
    Mutation(TEMPERATURE, "kl(jnp.exp(middle)) > budget", "kl(jnp.exp(middle)) < budget", "test_solution_spends"),
    Mutation(TEMPERATURE, " - math.log(advantage.shape[-1])", "", "test_slope_of_the_dual"),
    Mutation(TEMPERATURE, "(kl(jnp.exp(low)) <= budget) | (kl", "(kl", "test_ties_limit"),
    Mutation(TEMPERATURE, "jnp.sum(x * include)", "jnp.sum(x)", "test_rows_left_out"),
    Mutation(TEMPERATURE, "largest < math.log(num_samples)", "largest < num_samples", "test_a_budget_the_samples"),
    Mutation(
        TEMPERATURE,
        "jnp.clip(frames / self.decay_frames, 0.0, 1.0)",
        "frames / self.decay_frames",
        "test_budget_schedule",
    ),
    Mutation(TEMPERATURE, "jnp.sum(jnp.square(weights)", "jnp.sum((weights)", "test_kl_and_effective_size"),
    Mutation(RETURNS, "discount * (1.0 - ended)", "discount", "test_gae_is_the_loop"),
    Mutation(RETURNS, "jnp.where(terminated, 0.0,", "jnp.where(terminated, 1.0,", "test_truncation_bootstraps"),
    Mutation(RETURNS, "- ended > 0", "> 0", "test_n_step_is_the_loop"),
    Mutation(HEADS, "spec.vocab, scale=0.0)", "spec.vocab, scale=0.1)", "test_the_first_policy_is_uniform"),
    Mutation(HEADS, "matched_hidden(target, *sizes, steps)", "self.width", "test_the_flat_network_has_as_many"),
    Mutation(TRANSFORMER, "* (scale_a + 1.0)", "* scale_a", "test_features_are_those"),
    Mutation(TRANSFORMER, "x + gate_f * self.down(hidden)", "x + self.down(hidden)", "test_features_are_those"),
    Mutation(TRANSFORMER, "** -0.5", "** -1.0", "test_features_are_those"),
    Mutation(TRANSFORMER, "modulation + self.step[step][..., None, :]", "modulation", "test_step_adds_its_row"),
    Mutation(TRANSFORMER, "self._gates(layers))].set(1.0)", "self._gates(layers))].set(0.0)", "test_residual_gates"),
    Mutation("networks/layers.py", "x[..., i : i + height, j", "x[..., j : j + height, i", GRID),
    Mutation(TORSO, "jnp.max(matches", "jnp.mean(matches", "test_the_grid_torso"),
    Mutation("networks/images.py", "self.convolutions, x.reshape(-1, *x.shape[-3:]) / 255.0", IMAGE_AS_IT_IS, IMAGE),
    Mutation(
        FLAT,
        "jnp.mean(state, axis=1)",
        "jnp.sum(state, axis=1)",
        "networks/test_heads.py::test_the_flat_network_averages",
    ),
    Mutation(FKL, "taken / unit, target / unit", "taken, target", "test_errors_are_measured"),
    Mutation(FKL, "(state.spread.deviation, config", "(jnp.std(target), config", "test_the_spread_is_that_of_many"),
    Mutation("losses/spread.py", "jnp.maximum(1.0 / (self.batches + 1), RATE)", "RATE", "test_the_first_batches_count"),
    Mutation(FKL, "jnp.mean(counts * optax", "jnp.mean(optax", "test_a_row_without_weight"),
    Mutation(FKL, "rows.factor * jnp.mean(q", "rows.factor * jnp.max(q", "test_the_target_is_the_mean"),
    Mutation(FKL, "config.entropy_decay * total_frames", "1.0 * total_frames", "test_entropy_bonus_fades"),
    Mutation(FKL, "if improve else 1", "", "test_where_only_the_critic_learns"),
    Mutation(FKL, "improve=i == times - 1", "improve=True", "test_only_the_last_critic_update"),
    Mutation(RKL, "sample.value_target) / unit", "sample.value_target)", "test_advantages_bootstrap_through"),
    Mutation(RKL, "config.entropy_decay * total_frames", "1.0 * total_frames", "test_entropy_bonus_is_gone"),
    Mutation(RKL, "jnp.maximum(spread, config.advantage_floor)", "spread", "test_advantages_that_are_all_alike"),
    Mutation(OPTIMISE, "a + b / pieces", "a + b", "test_the_gradient_of_a_mean"),
    Mutation(OPTIMISE, "optax.clip_by_global_norm(self.max_gradient_norm)", "optax.identity()", "test_gradients_are"),
    Mutation(OPTIMISE, "t + rate * (o - t)", "o + rate * (t - o)", "test_targets_follow"),
    Mutation(
        BOOTSTRAP,
        "cut = pick(first.truncated, last)",
        "cut = pick(first.truncated & False, last)",
        "agents/test_fkl.py::test_after_a_truncation",
    ),
    Mutation(VTRACE, "rho = jnp.minimum(rho_clip, ratio)", "rho = ratio", "test_targets_are_the_sums"),
    Mutation(VTRACE, "decay * jnp.minimum(trace_clip, ratio)", "decay * ratio", "test_targets_are_the_sums"),
    Mutation(VTRACE, "discount * (next_value + later)", "discount * next_value", "test_on_policy_it_is_the_n_step"),
    Mutation("losses/scale.py", "+ SLOPE * x", "", "test_known_values"),
    Mutation(KL, "jnp.where(terms.unmasked, surrogate, 0.0)", "surrogate", "test_positions_are_clipped_one_by_one"),
    Mutation("networks/sequential.py", "kept.key.shape[1]) <= place", "kept.key.shape[1]) < 99", "test_step_by_step"),
    Mutation(
        FKL,
        "online.value(jax.lax.stop_gradient(embedded.after))",
        "online.value(embedded.after)",
        "test_a_value_learned_beside_q",
    ),
    Mutation(FKL, "jnp.mean(q, axis=-1).reshape(", "jnp.sum(q, axis=-1).reshape(", "test_a_value_learned_beside_q"),
    Mutation("agents/relay.py", "policy=before.online.policy, head", "head", "test_the_second_agent_starts_from"),
    Mutation("agents/relay.py", "max(history, key", "min(history, key", "test_patience_hands_over"),
    Mutation("domains/agreement.py", "agreed & ~paid", "agreed", "test_an_agreement_pays_once"),
    Mutation("domains/pettingzoo.py", "legal[i, k, 1:] = False", "pass", "test_an_episode_of_agents_that_leave"),
    Mutation(RETURNS, "jnp.where(truncated, final, shifted)", "shifted", "test_what_follows_a_step"),
    Mutation(RETURNS, "ended.at[:, -1].set(True)", "ended", "test_n_step_from_every_step"),
    Mutation(DQN, "weight * optax.huber_loss", "optax.huber_loss", "test_a_row_without_weight"),
    Mutation(DQN, "if config.double else None", "if False else None", "test_priorities_are_the_errors[True]"),
    Mutation(
        OPTIMISE, "updates % period == 0", "updates % period == 1", "agents/test_dqn.py::test_the_target_is_copied"
    ),
    Mutation(IMPALA, "made.log_prob - rows.memory", "0.0 * rows.memory", "test_ratios_above_one"),
    Mutation(R2D2, "0.5 * jnp.mean(weight[:, None] *", "0.5 * jnp.mean(", "agents/test_sequences.py::test_r2d2_weighs"),
    Mutation(R2D2, "rescale(target) if config", "target if config", SEQUENCE_ERRORS),
    Mutation(SEQUENCES, "last + 1, 1.0 - cut", "last + 1, 1.0 + 0.0 * cut", SEQUENCE_ERRORS),
    Mutation(SEQUENCES, "jnp.where(step.ended, 0.0, step.reward)", "step.reward", "test_what_was_done_and_paid"),
    Mutation(SEQUENCES, "jax.lax.stop_gradient, part(0,", "lambda x: x, part(0,", "test_no_gradient_passes"),
    Mutation(RECURRENT, "jax.nn.sigmoid(keep) * cell", "cell", "test_the_equations"),
    Mutation(RECURRENT, "jnp.where(ended, 0.0, reward)", "reward", "test_unrolled_is_step_by_step"),
    Mutation("experience/replay.py", "** self.config.importance_exponent", "", "test_sequences_are_drawn_by_priority"),
    Mutation("agents/q_network.py", "out - jnp.mean(out, axis=-1, keepdims=True)", "out", "test_dueling_advantages"),
    Mutation("runner/checkpoint.py", " if leaf.size}", "}", "test_every_game_can_be_saved[rkl-asterix]"),
    Mutation(AGGREGATE, "cut = runs.shape[-1] // 4", "cut = runs.shape[-1] // 3", "test_iqm_is_scipys"),
    Mutation(AGGREGATE, "np.median(np.mean(scores, axis=-2), axis=-1)", "np.median(scores, (-2, -1))", "test_median"),
    Mutation(AGGREGATE, "+ 0.5 * (difference == 0)", "", "test_probability_of_improvement_is_mann_whitney"),
    Mutation(AGGREGATE, "(times, seeds, tasks)", "(times, seeds, 1)", "test_all_resamples_are_equally_likely"),
    Mutation(COMPARE, "low <= top_high and high >= top_low", "high >= top.interval.mean", "test_best_and_what"),
    Mutation(GUIDANCE, "logits + strength * reward_gain", "logits + reward_gain", "test_guidance_by_a_linear_reward"),
    Mutation(GUIDANCE, "wanted + strength * (wanted", "wanted + (wanted", "test_classifier_free_guidance"),
    Mutation(
        "agents/oracle_start.py",
        "jnp.square(regress",
        "jnp.abs(regress",
        "agents/test_oracle.py::test_hidden_units_look",
    ),
    Mutation(
        "networks/convolution.py", "rows(modulation), re", "rows(modulation)[::-1], re", "test_pieces_are_the_whole"
    ),
    Mutation("studies/dna_cost.py", "AGAIN in cost.method]", "False]", "test_dna_studies.py::test_costs_are_compared"),
    Mutation(
        "agents/oracle_start.py",
        "ridge * jnp.eye",
        "0.0 * jnp.eye",
        "agents/test_oracle.py::test_the_first_guess",
    ),
    Mutation("networks/oracle.py", "None else jnp.clip(x, -reach, reach)", "None else x", ORACLE + "promises_nothing"),
    Mutation("report/compare_plots.py", "np.interp(grid, *line)", "line[1][-1] + 0 * grid", "test_all_tasks_together"),
    Mutation("report/compare_tables.py", "min(at[-1] for", "max(at[-1] for", "test_runs_at_equal_time"),
    Mutation(RKL, "policy.schedule.steps / pairs.step.shape[-1]", "1.0", "test_some_steps_of_a_chain"),
    Mutation(FINETUNE, "jnp.log(weights), shape", "jnp.zeros_like(weights), shape", DESIGN + "raises_the_reward[fkl]"),
    Mutation(
        GUIDANCE, "jnp.where((tokens == mask_token)[..., None], ", "jnp.where(True, ", GUIDED + "test_the_gain_is"
    ),
    Mutation(
        FINETUNE,
        "before + gain / step_temperature, logits",
        "before + gain, logits",
        CRITIC + "test_a_step_goes_as_far",
    ),
    Mutation(
        FINETUNE, "chain_kl(before + gain / value", "2 * chain_kl(before + gain / value", CRITIC + "test_a_step_goes"
    ),
    Mutation(
        "agents/sequence_critic.py",
        "(config.batch_size,), 0, filled",
        "(config.batch_size,), 0, len(known)",
        CRITIC + "test_it_learns_from_what_is_there",
    ),
    Mutation(
        "agents/sequence_critic.py",
        "(groups % (len(critic.rewards) // number)) * number",
        "0",
        CRITIC + "test_it_keeps_the_newest",
    ),
    Mutation(FINETUNE, "multiplicity * abar[pairs.step]", "multiplicity", f"{DESIGNED}forward_kl_weighs"),
    Mutation("agents/drakes.py", "return config.anchor * away", "return -away", f"{DESIGNED}the_anchor_of_drakes"),
    Mutation(FINETUNE, "[new, old[", "[old[: new.shape[0]], old[", DESIGN + "remembers_the_last_groups"),
    Mutation(PARTICLES, "promise - before", "promise", GUIDED + "test_weights_are_of_the_step_alone"),
    Mutation(
        PARTICLES, "own - moved.log_prob, 0.0", "0.0 * own, 0.0", GUIDED + "test_particles_aim_at_the_tilted_model"
    ),
    Mutation("diffusion/relaxed.py", "jnp.log(abar) + jax", "jax", GUIDED + "test_a_cold_relaxed_step_has_the_law"),
    Mutation("networks/convolution.py", "self.weight[::-1][:,", "self.weight[:,", "test_strand_convolutions_commute"),
    Mutation(
        "sequences/synthetic.py", "counts[:, :number] - counts[:, number:]", "counts[:, :number]", "test_both_strands"
    ),
    Mutation(
        "sequences/kmers.py",
        "known = min(place, self.order)\n            word",
        "known = 0\n            word",
        "test_a_markov",
    ),
    Mutation("bench/drift.py", "masked[None] == left", "masked[None] <= left", "test_one_component_a_step"),
]


@pytest.fixture(scope="module")
def broken(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Mutation], Ended]]:
    """Runs of the selected mutations, started ahead, two at a time; under xdist each when its turn comes."""
    ahead = [] if "PYTEST_XDIST_WORKER" in os.environ else request.session.items
    mine = [item for item in ahead if isinstance(item, pytest.Function) and item.module is request.module]
    selected = [cast(Mutation, item.callspec.params["mutation"]) for item in mine]
    with ThreadPoolExecutor(max_workers=2) as pool:
        started = {m: pool.submit(_run, m, tmp_path_factory.mktemp("broken")) for m in selected}
        yield lambda m: started[m].result() if m in started else _run(m, tmp_path_factory.mktemp("broken"))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.formula}")
def test_broken_formula_is_noticed(mutation: Mutation, broken: Callable[[Mutation], Ended]):
    result = broken(mutation)
    assert result.code == pytest.ExitCode.TESTS_FAILED, f"not noticed:\n{result.said}"
    assert mutation.test.split("::")[-1] in result.said.partition("short test summary")[2], result.said


def _run(mutation: Mutation, folder: Path) -> Ended:
    shutil.copy(ROOT / "pyproject.toml", folder)
    for part in ("rld2", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "rld2" / mutation.file
    text = file.read_text()
    assert text.count(mutation.formula) == 1, f"{mutation.formula!r} should stand once in {mutation.file}"
    file.write_text(text.replace(mutation.formula, mutation.broken))

    name, _, test = mutation.test.rpartition("::")
    module = f"tests/{name}" if name else f"tests/{Path(mutation.file).parent}/test_{Path(mutation.file).name}"
    pick = [f"{module}::{test}"] if "[" in test else [module, "-k", test]
    # without checks of shapes: it is the test that must notice
    plain = ["-o", "addopts=", "-m", "not slow", "--hypothesis-profile=broken"]
    return pytest_in(folder, ["-x", "-q", "-p", "no:cacheprovider", *plain, *pick])
