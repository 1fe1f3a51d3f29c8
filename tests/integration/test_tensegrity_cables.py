"""Cables with factors of their own among the parameters: against structures that have them, by differences, and from a file."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.parameters import factor_names
from softgym_envs.systems.tensegrity.procedure import PROCEDURE
from softgym_envs.systems.tensegrity.residual import random_weights

RNG = np.random.default_rng(5)
STIFFNESS, REST = (tuple(1.0 + spread * RNG.uniform(-1.0, 1.0, 24)) for spread in (0.2, 0.02))
FACTORS = dict(zip(factor_names(24, 24), (*STIFFNESS, *REST, *(1.0,) * 24), strict=True))


@pytest.mark.parametrize("contact", ["stick", "patch"])
@pytest.mark.parametrize("learned", [False, True])
def test_factors_do_what_the_structure_does(contact: str, learned: bool) -> None:
    """Three rows that roll over the ground, one beside the other: the same numbers to rounding, and tensions too."""
    weights = tuple(random_weights(np.random.default_rng(1)) + 0.05) if learned else ()
    own = TensegritySimulator(contact=contact, own_cables=True, residual=weights)
    built = TensegritySimulator(
        replace(superball(), stiffness_ratio=STIFFNESS, rest_ratio=REST), contact=contact, residual=weights
    )
    controls = np.random.default_rng(2).uniform(-50.0, 50.0, (3, 4, 24))
    state = built.initial_state(3)
    parameters = own.default_parameters.replace(**FACTORS)
    for one, other in (
        (own.rollout(state, controls, parameters, substeps=50)[0], built.rollout(state, controls, substeps=50)[0]),
        (own.cable_tensions(state, parameters), built.cable_tensions(state)),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    alike = TensegritySimulator(contact=contact, residual=weights)
    same = own.rollout(state, controls, substeps=50)[0]
    assert (same == alike.rollout(state, controls, substeps=50)[0]).all()  # factors of 1


def test_a_factor_on_the_gain_is_one_on_the_motor() -> None:
    """One motor commanded by 10 that pulls 1.3 times as much is one commanded by 13."""
    own = TensegritySimulator(own_cables=True, contact="patch")
    controls = np.zeros((2, 5, 24))
    controls[0, :, 7], controls[1, :, 7] = 10.0, 13.0
    factors = np.ones(2)
    factors[0] = 1.3
    parameters = own.default_parameters.replace(gain_factor7=factors)
    states = own.rollout(own.initial_state(2), controls, parameters, substeps=40)[0]
    body = states[..., : 6 * 13]
    np.testing.assert_allclose(body[0], body[1], atol=1e-9)


def test_their_gradients_are_those_of_differences() -> None:
    simulator = TensegritySimulator(prism(), contact="patch", own_cables=True)
    names = simulator.default_parameters.names()
    rng = np.random.default_rng(3)
    controls, cotangent = rng.uniform(-1.0, 1.0, (1, 3, simulator.nu)), rng.standard_normal((1, 4, simulator.nx))
    state = simulator.initial_state(1)
    state[:, 2::13] += 1.0  # in the air
    found = simulator.vjp(state, controls, cotangent, substeps=20).parameter_values[0]
    for name in ("gain_factor1", "stiffness_factor0", f"stiffness_factor{simulator.model.num_cables - 1}", "rest_factor4"):
        ends = []
        for step in (-1e-5, 1e-5):
            moved = simulator.default_parameters.replace(**{name: 1.0 + step})
            ends.append(float((simulator.rollout(state, controls, moved, substeps=20)[0] * cotangent).sum()))
        assert found[names.index(name)] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-4, abs=1e-7)


def test_their_class_is_kept() -> None:
    parameter_values = TensegritySimulator(own_cables=True).default_parameters.replace(rest_factor3=1.01)
    assert pickle.loads(pickle.dumps(parameter_values)) == parameter_values
    with pytest.raises(OptionError, match="own_cables is 1, allowed are True and False"):
        TensegritySimulator(own_cables=1)  # type: ignore[arg-type]


def after_ten_steps(env: gym.Env[Any, Any], parameter_values: dict[str, float]) -> Any:
    """What is observed after a reset with such parameters."""
    env.reset(seed=0, options={"parameters": parameter_values})
    return [env.step(np.zeros(24))[0] for _ in range(10)][-1]


def test_a_fit_of_them_opens_as_an_environment(tmp_path: Path) -> None:
    simulator = TensegritySimulator(own_cables=True, contact="patch")
    parameter_values = simulator.default_parameters.replace(rest_factor3=1.01)
    file = parameter_values.save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(simulator).table())
    with gym.make("softgym_envs:TensegrityRoll-v0", params=file) as env:
        opened = env.unwrapped.simulator  # type: ignore[attr-defined]
        assert opened.own_cables and opened.parameters_class is type(parameter_values)
        ends = [
            after_ten_steps(env, {}),
            after_ten_steps(env, {"rest_factor3": 1.01}),
            after_ten_steps(env, {"rest_factor3": 1.0}),
        ]
        assert (ends[0] == ends[1]).all() and (ends[0] != ends[2]).any()  # the file's own value acts


def test_the_procedure_frees_them_with_what_is_known_of_cables() -> None:
    for robot, some in ((TensegritySimulator(own_cables=True), 72), (TensegritySimulator(), 0)):
        for name in ("refine", "seen"):
            stage = PROCEDURE.stage(name)
            known = stage.prior_of(stage.free_of(robot))
            assert len(known) == some and set(known) == (set(factor_names(24, 24)) if some else set())
