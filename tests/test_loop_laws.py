"""What the model's step and its smooth law of dry friction leave open, by truths with other ones."""

from dataclasses import replace

import numpy as np

from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.loop.dynamics import LoopSimulator
from softgym_envs.loop.model import ARM, FRICTION
from softgym_envs.loop.parameters import LoopParameters
from softgym_envs.loop.recipe import DAMPING, RECIPE, manipulation
from softgym_envs.loop.tracking import creeping, held, in_half_steps, pulled, tracker
from sysid import run_recipe

TRUTH = LoopParameters(theta_stiffness=3.2, psi_stiffness=1.3, loop_damping=0.035, arm_damping=1.1)


def recorded(truth, seconds, constants=TRUTH, scale=0.3):
    return manipulation(truth, np.random.default_rng(0), steps=round(seconds / truth.dt), parameters=constants, scale=scale)


def test_half_of_the_step_is_nearer_to_a_truth_in_fine_steps():
    """Torques are held for 10 ms: of first order at worst, so at least half of the errors goes."""
    recording = recorded(LoopSimulator(dt=1e-3), 2.0)
    noise = {**dict.fromkeys(ARM, 2e-4), **{f"control:{name}": 0.02 for name in ARM}}
    sizes = []
    for simulator in (held(LoopSimulator()), in_half_steps(held(LoopSimulator()))):
        errors = tracker(simulator, pulled(held(LoopSimulator()), recording)).anchored(TRUTH.to_vector(), noise)
        found, good = errors.errors(TRUTH.to_vector()[None])
        assert good.all()
        sizes.append(np.sqrt(np.mean(found**2)))
    assert sizes[1] < 0.55 * sizes[0]


def test_another_law_of_friction_is_within_the_intervals_and_the_verdict_names_it():
    """A truth whose friction sets in over a quarter more speed: less is told where it acts."""
    rubbed = TRUTH.replace(**dict.fromkeys(FRICTION, 0.15))
    clean, rng = recorded(creeping(LoopSimulator()), 4.0, rubbed, scale=None), np.random.default_rng(1)
    data = replace(clean.with_noise(rng, 5e-4), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))
    stage = replace(RECIPE.laboratory, free=(*DAMPING, *FRICTION))
    fit = run_recipe(RECIPE, LoopSimulator(), TrajectorySet((data,)), start=TRUTH, stages=(stage,)).stages[0].fit
    off = {e.name: abs(e.value - getattr(rubbed, e.name)) / e.std for e in fit.estimates}
    assert off["friction_w0"] > 2.5  # what noise alone leaves open misses it
    assert all(e.interval[0] <= getattr(rubbed, e.name) <= e.interval[1] for e in fit.estimates)
    said = [v for v in fit.verdicts if v.text.startswith("friction that creeps")]
    assert len(said) == 1 and said[0].level == "warning" and "friction_w0" in said[0].text
