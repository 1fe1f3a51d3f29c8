"""What the model's step and its smooth law of dry friction leave open, by ground truths with other ones."""

from dataclasses import replace

import numpy as np

from softgym_envs.core.procedure import MethodData, in_half_steps
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import ARM, FRICTION, LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import DAMPING, PROCEDURE, STIFFNESS, manipulation
from softgym_envs.systems.loop.springs import factor_names
from softgym_envs.systems.loop.tracking import creeping, held, pulled, tracker
from sysid.procedure.run import run_procedure

GROUND_TRUTH = LoopParameters(theta_stiffness=3.2, psi_stiffness=1.3, loop_damping=0.035, arm_damping=1.1)


def recorded(ground_truth, seconds, parameter_values=GROUND_TRUTH, scale=0.3):
    return manipulation(
        ground_truth, np.random.default_rng(0), steps=round(seconds / ground_truth.dt), parameters=parameter_values, scale=scale
    )


def test_half_of_the_step_is_nearer_to_a_ground_truth_in_fine_steps():
    """Torques are held for 10 ms: of first order at worst, so at least half of the errors goes."""
    recording = recorded(LoopSimulator(dt=1e-3), 2.0)
    noise = {**dict.fromkeys(ARM, 2e-4), **{f"control:{name}": 0.02 for name in ARM}}
    sizes = []
    for simulator in (held(LoopSimulator()), in_half_steps(held(LoopSimulator()))):
        errors = tracker(simulator, pulled(held(LoopSimulator()), recording)).anchored(GROUND_TRUTH.to_vector(), noise)
        found, good = errors.errors(GROUND_TRUTH.to_vector()[None])
        assert good.all()
        sizes.append(np.sqrt(np.mean(found**2)))
    assert sizes[1] < 0.55 * sizes[0]


def test_another_law_of_friction_is_within_the_intervals_and_a_diagnostic_names_it():
    """A ground truth whose friction sets in over a quarter more speed: less is told where it acts."""
    rubbed = GROUND_TRUTH.replace(**dict.fromkeys(FRICTION, 0.15))
    clean, rng = recorded(creeping(LoopSimulator()), 4.0, rubbed, scale=None), np.random.default_rng(1)
    data = replace(clean.with_noise(rng, 5e-4), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))
    stage = replace(PROCEDURE.from_recordings, free=(*DAMPING, *FRICTION))
    fit = run_procedure(PROCEDURE, LoopSimulator(), TrajectorySet((data,)), start=GROUND_TRUTH, stages=(stage,)).stages[0].fit
    off = {e.name: abs(e.value - getattr(rubbed, e.name)) / e.std for e in fit.estimates}
    assert off["friction_w0"] > 2.5  # what noise alone leaves open misses it
    assert all(e.interval[0] <= getattr(rubbed, e.name) <= e.interval[1] for e in fit.estimates)
    said = next(d for d in fit.of("model_choice") if str(d.parameter).startswith("friction that creeps"))
    assert said.severity == "warning"
    assert "friction_w0" in {moved["name"] for moved in said.facts["moved"]}


def test_springs_that_are_not_alike_move_a_fit_as_its_diagnostic_says():
    """By how much each of four groups of springs moves whole fits, one at a time, makes up what the diagnostic tells of all."""
    model, factor = replace(LoopModel(), spring_parts=1), 0.05
    own = LoopSimulator(model)
    names = factor_names(1)
    stage = replace(PROCEDURE.from_recordings, free=STIFFNESS)
    grouped = replace(
        PROCEDURE,
        methods=MethodData(
            homogeneous={"springs unlike": (factor, lambda s: replace(s, model=replace(s.model, spring_parts=1)))}
        ),
    )

    def fitted(**factors):
        ground_truth = own.default_parameters.replace(
            **{name: getattr(GROUND_TRUTH, name) for name in GROUND_TRUTH.names()}, **factors
        )
        clean, rng = recorded(own, 3.0, ground_truth, scale=None), np.random.default_rng(1)
        data = replace(clean.with_noise(rng, 2e-4), controls=clean.controls + 0.02 * rng.standard_normal(clean.controls.shape))
        fit = run_procedure(grouped, LoopSimulator(), TrajectorySet((data,)), start=GROUND_TRUTH, stages=(stage,)).stages[0].fit
        return fit, np.log([getattr(fit.parameters, name) for name in STIFFNESS])

    fit, alike = fitted()
    moved = np.array([fitted(**{name: np.exp(factor)})[1] - alike for name in names])
    said = next(d for d in fit.of("model_choice") if d.parameter == "springs unlike")
    assert said.severity == "warning" and not said.facts["allowed"]
    told = {moved["name"]: moved["reach"] for moved in said.facts["moved"]}
    assert np.allclose([told[name] for name in STIFFNESS], 1.96 * np.linalg.norm(moved, axis=0), rtol=0.1)
