"""Rewards that users bring: asked once for each sequence, and told clearly what is wrong with them."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.domains.rewards import BlackBox, function_named, reward_from
from rld2.sequences.vocabulary import DNA


def test_a_black_box_is_asked_once_for_each_sequence():
    asked: list[list[str]] = []

    def function(sequences: Any) -> list[float]:
        asked.append(list(sequences))
        return [s.count("G") / 4 for s in sequences]

    box = BlackBox(function, DNA, at_once=2)
    scores = box(DNA.encode_all(["GGAA", "AAAA", "GGAA", "GGGG"]))
    assert scores.tolist() == [0.5, 0.0, 0.5, 1.0]
    box(DNA.encode_all(["AAAA", "CCCC"]))
    assert asked == [["GGAA", "AAAA"], ["GGGG"], ["CCCC"]]
    assert (box.asked, box.calls) == (6, 4)
    for answer, message in (([1.0], "one score a sequence: 2, got shape"), ([1.0, float("nan")], "TTTT must be a fin")):
        with pytest.raises(ValueError, match=message):
            BlackBox(lambda _, answer=answer: answer, DNA)(DNA.encode_all(["AAAA", "TTTT"]))


def test_rewards_that_were_paid_for_are_not_asked_again():
    box = BlackBox(None, DNA)
    box.learn(DNA.encode_all(["AAAA", "TTTT"]), np.array([1.0, 2.5]))
    assert box(DNA.encode_all(["TTTT", "AAAA"])).tolist() == [2.5, 1.0]
    with pytest.raises(ValueError, match=r"give it again to `rld2.train`"):
        box(DNA.encode_all(["GGGG"]))


def broken(sequences: Any) -> Any:
    return sequences[0] / 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (broken, r"the reward .*:broken failed: TypeError: unsupported .* \(test_rewards.py, line \d+\)"),
        (lambda s: dict.fromkeys(s, 1.0), "must return a list or array of one number a sequence, got a dict"),
        (
            lambda s: [1e300 for _ in s],
            r"of AAAA must be a finite number \(below 3.4e38, in single precision\), got 1e",
        ),
    ],
)
def test_what_is_wrong_with_a_function_of_strings_is_told(function: Any, message: str):
    with pytest.raises(ValueError, match=message):
        BlackBox(function, DNA)(DNA.encode_all(["AAAA", "TTTT"]))


def test_a_function_has_a_name():
    assert function_named("math:sqrt")
    with pytest.raises(ValueError, match=r"must be 'oracle', 'true' or a Python function as package.module:function"):
        function_named("no.such:thing", "'oracle', 'true' or ")
    with pytest.raises(ValueError, match=r"reward 'no.such:thing' must be a Python function"):
        function_named("no.such:thing")
    with pytest.raises(ValueError, match="cannot be called"):
        function_named("math:pi")


def test_a_function_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_reward_here.py").write_text("def score(sequences):\n    return [0.0 for _ in sequences]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    assert function_named("my_reward_here:score")(["A"]) == [0.0]


@pytest.mark.parametrize(("text", "message"), [("def f(:", "SyntaxError"), ("f = g", "NameError: name 'g' is not")])
def test_a_module_that_cannot_be_read_is_told(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = f"my_{message[:5].lower()}_module"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"reward '{name}:f' must be .*{message}"):
        function_named(f"{name}:f")


def test_a_users_reward_of_letters_can_be_differentiated_one_of_strings_is_a_black_box():
    def letters(x: jax.Array) -> jax.Array:
        return jnp.mean(x[..., 2], axis=-1)

    assert isinstance(reward_from(letters, DNA, 4), BlackBox)
    letters.relaxed = True  # pyright: ignore[reportFunctionMemberAccess]
    assert reward_from(letters, DNA, 4) is letters


def marked(function: Any) -> Any:
    function.relaxed = True
    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: jnp.mean(x[..., 2]), "must return one score a sequence: (3,), got ()"),
        (lambda x: [1.0, 2.0], "must return one score a sequence: (3,), got list"),
        (lambda x: jnp.log(x[:, 0, 0] - 2.0), "must return finite numbers, got [nan, nan, nan]"),
        (
            lambda x: np.asarray(x)[:, 0, 0],
            "must be written in JAX and take an array of shape (sequences, letters, voc",
        ),
        (lambda x: x.nothing, "it failed: AttributeError: "),
    ],
)
def test_what_is_wrong_with_a_function_of_probabilities_is_told_before_it_is_compiled(function: Any, message: str):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        reward_from(marked(function), DNA, 4)
    assert "\n" not in str(refused.value)
