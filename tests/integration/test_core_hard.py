"""Mismatched models: every switch does something and only its own; commands come late, and through play, as defined;
sensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.mismatch import MismatchedModel, seen
from softgym_envs.core.procedure import Procedure
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.data.sensors import Sensor, sensor_from_text
from softgym_envs.envs.drawing import scene_of
from softgym_envs.systems import system, systems
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, MujocoTensegrity
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle, wall

LEANING = VineModel(obstacles=(circle(0.55, 0.071, 0.06), wall(0.93, 0.0, np.pi)))
"""A straight robot leans on a circle, and grows into a wall."""
MUJOCO_MODELS = {r.name: kind for r in systems().values() if isinstance(kind := r.simulator(backend="mujoco"), MismatchedModel)}
EFFECTS = [
    (name, effect.name)
    for name, mujoco_model in MUJOCO_MODELS.items()
    for effect in mujoco_model.ladder.effects
    if "recorded" not in effect.text  # what sensors say moves nothing: test_loop_ground_truths
]


def mujoco_model_of(name: str, **options: Any) -> Any:
    return system(name).simulator(LEANING if name == "vine" else None, backend="mujoco", options=options)


def motion(mujoco_model: Any) -> np.ndarray:
    """A few control steps of the robot's own entries under commands that turn around, with a bit of sideways speed."""
    low, high = mujoco_model.control_bounds
    reach = np.where(np.isfinite(high), np.abs(high), 10.0)
    turns = np.linspace(0.3, 0.9, mujoco_model.nu) * np.array([[1.0], [-1.0], [1.0], [0.5]])
    controls = np.clip(turns * reach, low, high)
    state = (
        mujoco_model.embed(mujoco_model.model.straight_state(0.9)[None])
        if mujoco_model.system == "vine"
        else mujoco_model.initial_state(1)
    )
    if mujoco_model.system == "particles":
        state[:, 1] = 0.0  # on the ground
    names = [n.split(".")[-1] for n in mujoco_model.state_names]
    state[:, [n in ("vx", "vz", "vheight") for n in names]], state[:, [n == "vy" for n in names]] = 0.3, -0.3
    if mujoco_model.system == "box":  # strikes the table while it turns
        state[:, 9:13], controls = (-0.5, 3.0, -2.0, 1.0), 0.2 * controls
        state[:, 2] += 0.03
    states, status = mujoco_model.rollout(state, controls[None], substeps=max(1, round(0.04 / mujoco_model.dt)))
    assert not status.any()
    return states[0, :, : mujoco_model.model.layout.nx]


@pytest.fixture(scope="module")
def drawn() -> dict[str, np.ndarray]:
    return {name: motion(mujoco_model_of(name)) for name in MUJOCO_MODELS}


@pytest.mark.parametrize("name", list(MUJOCO_MODELS))
def test_a_world_with_a_memory_is_drawn_as_the_robot_that_it_is(name: str) -> None:
    plain, late = (
        system(name).simulator(backend="mujoco", options={"effects": effects}) for effects in ({}, {"latency": 0.02})
    )
    assert late.nx > plain.nx
    drawn = [scene_of(world, world.initial_state()[0]).primitives for world in (plain, late)]
    assert len(drawn[0]) == len(drawn[1]) > 0


@pytest.mark.parametrize(("name", "effect"), EFFECTS)
def test_every_switch_changes_the_motion(name: str, effect: str, drawn: dict[str, np.ndarray]) -> None:
    """At the size of level 3, or, where no level has it, at a size that a user gives (20 ms, 5 % of the range)."""
    size = next(e.sizes[2] for e in MUJOCO_MODELS[name].ladder.effects if e.name == effect) or (
        0.02 if effect == "latency" else 0.05
    )
    hard = motion(mujoco_model_of(name, effects={effect: size}, seed=1))
    if effect == "string" and MUJOCO_MODELS[name].model.pulley is None:
        return
    assert np.abs(hard - drawn[name]).max() > 1e-9


@pytest.mark.parametrize("name", MUJOCO_MODELS)
def test_levels_are_drawn_by_seed(name: str, drawn: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(motion(mujoco_model_of(name, level=0, seed=5)), drawn[name])
    first, again, other = (motion(mujoco_model_of(name, level=3, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-9


def test_one_switch_changes_no_other_draw() -> None:
    both, one = (mujoco_model_of("tensegrity", level=2, seed=4, effects=e) for e in ({}, {"gain_spread": 0.0}))
    np.testing.assert_array_equal(both.spread("rest_spread", 24), one.spread("rest_spread", 24))
    assert np.abs(both.spread("rest_spread", 24)).max() <= 0.02
    assert not one.spread("gain_spread", 24).any()


def test_late_commands_are_the_same_commands() -> None:
    """In the air, with a rod held, nothing but the commands drives the robot: 7 ms later the same motion begins."""
    commands = np.random.default_rng(0).uniform(-100, 100, (40, 24))
    prompt, late = (MujocoTensegrity(fixed_rod=0, effects=e) for e in ({}, {"latency": 0.007}))
    waiting = np.concatenate([np.zeros((7, 24)), commands])
    first, _ = prompt.rollout(prompt.initial_state(), waiting[None])
    second, _ = late.rollout(late.initial_state(), np.concatenate([commands, np.zeros((7, 24))])[None])
    np.testing.assert_allclose(second[0, :, : prompt.nx], first[0], atol=1e-12)
    assert set(seen(late.state_names)) == set(prompt.state_names)


def test_play_and_dead_zone_by_hand() -> None:
    """Range -100 ... 100; play of 10 on both sides, dead up to 5: 50 -> 45 -> 35; then 45 -> 40, within the play; 0 -> 10."""
    mujoco_model = MujocoTensegrity(effects={"backlash": 0.1, "dead_zone": 0.05})
    memory, arriving = np.zeros((1, 24)), []
    for command in (3.0, 50.0, 45.0, 0.0):
        commands, memory = mujoco_model._arriving(memory, np.full((1, 24), command), 2)
        arriving.append(commands[0, :, 0].tolist())
    assert arriving == [[0.0, 0.0], [35.0, 35.0], [35.0, 35.0], [10.0, 10.0]]


def test_a_payload_has_the_inertia_of_a_rod_and_a_point() -> None:
    """About the common centre, from sums over 20 000 slices of the rod, and the point."""
    mujoco_model = MujocoTensegrity(effects={"payload": 3.0}, seed=2)
    mj = mujoco_model.mj_model(MujocoParameters())
    body = 1 + int(np.argmax(mj.body_mass[1:]))
    half, radius = 0.5 * mujoco_model.model.rod_lengths[body - 1], mujoco_model.model.rod_radius
    z = (np.arange(20_000) + 0.5) / 20_000 * 2 * half - half
    slices, end = np.full(len(z), 10.0 / len(z)), np.sign(mj.body_ipos[body, 2]) * half
    centre = (slices @ z + 3.0 * end) / 13.0
    across = slices @ (z - centre) ** 2 + 10.0 * radius**2 / 4 + 3.0 * (end - centre) ** 2
    np.testing.assert_allclose(
        [mj.body_mass[body], mj.body_ipos[body, 2], *mj.body_inertia[body, :2]], [13.0, centre, across, across], rtol=1e-7
    )


def test_bad_switches_are_named() -> None:
    with pytest.raises(OptionError, match="effects has 'wind'; there are latency"):
        _ = mujoco_model_of("tensegrity", effects={"wind": 1.0}).sizes
    with pytest.raises(OptionError, match="level is 4"):
        _ = mujoco_model_of("tensegrity", level=4).sizes
    for effect, size, message in (
        ("tilt", 2.0, r"effects: tilt is 2.0, expected a number \[rad\] in \[0, 1.5708\]"),
        ("dead_zone", 2, r"effects: dead_zone is 2, expected a number in \[0, 0.95\]"),
        ("latency", 1e9, r"effects: latency is .* \[s\] in \[0, 1\]"),
        ("mass_spread", 1.5, "effects: mass_spread"),
        ("hysteresis", 1e9, "effects: hysteresis"),
        ("payload", -1.0, "effects: payload"),
    ):
        with pytest.raises(OptionError, match=message):
            _ = mujoco_model_of("tensegrity", effects={effect: size}).sizes
    for seed in (-1, 0.5, "one"):
        with pytest.raises(OptionError, match="seed is"):
            mujoco_model_of("tensegrity", level=1, seed=seed).initial_state()


# --- sensors ------------------------------------------------------------------------------------------------------------


def swing(rows: int = 4001) -> Trajectory:
    """A point that swings, and an angle, at 1 kHz."""
    t = 1e-3 * np.arange(rows)
    values = np.stack([np.sin(3 * t), np.cos(3 * t), 0.1 * t, np.cos(3 * t)], axis=1)
    names, units = ("a.x", "a.y", "angle", "a.vx"), ("m", "m", "rad", "m/s")
    return Trajectory(t, np.repeat(np.arange(rows - 1)[:, None], 1, axis=1), values, names, units, ("u",), ("-",))


def seen_by(sensor: Sensor) -> Trajectory:
    class Point:
        state_names = ("a.x", "a.y", "angle", "a.vx")

    return sensor(swing(), Point(), Procedure(stages=()), np.random.default_rng(0))


def test_a_frame_shows_the_robot_before_its_stamp() -> None:
    found = seen_by(Sensor(rate=120.0, latency=0.05))
    assert found.names == ("a.x", "a.y", "angle") and abs(found.period - 1 / 120) < 1e-12
    np.testing.assert_allclose(found.values[:, 0], np.sin(3 * found.times), atol=2e-6)
    # Row 0 is stamped 50 ms after the motion that it shows began: k is commanded k ms after that; a frame has means.
    np.testing.assert_allclose(found.commanded[:, 0], 1e-3 * found.commanded[:, 1] - 0.05, atol=1e-12)
    edges = 1000 / 120 * np.arange(10)
    means = np.diff(0.5 * np.floor(edges) * (np.floor(edges) - 1) + (edges - np.floor(edges)) * np.floor(edges)) * 0.12
    np.testing.assert_allclose(found.controls[:3, 0], means[6:])
    # What acts until then was given before: in the motion's first six frames.
    np.testing.assert_allclose(found.before[:, 0], means[:6])


def test_commands_that_change_at_frames_are_logged_with_them() -> None:
    held = replace(swing(), controls=np.repeat(np.arange(40.0), 100)[:, None])
    found = Sensor(rate=100.0, latency=0.05)._framed(held)
    assert not len(found.commanded)
    np.testing.assert_array_equal(found.controls[:, 0], np.repeat(np.arange(40.0), 10)[5:])
    np.testing.assert_array_equal(found.before[:, 0], np.zeros(5))


def test_noise_gaps_outliers_and_pose_have_their_sizes() -> None:
    exact, noisy = seen_by(Sensor()), seen_by(Sensor(noise=0.002, angle_noise=0.01, dropout=0.1))
    error, lost = noisy.values - exact.values, np.isnan(noisy.values)
    assert (lost[:, 0] == lost[:, 1]).all() and 0.08 < lost[:, 0].mean() < 0.12
    np.testing.assert_allclose(np.nanstd(error, axis=0), [0.002, 0.002, 0.01], rtol=0.06)
    far = np.abs(seen_by(Sensor(outliers=0.02)).values - exact.values)[:, 0] > 0
    assert 0.014 < far.mean() < 0.027
    turned = seen_by(Sensor(turn=0.3, scale=2.0)).values
    angle = np.arctan2(exact.values[:, 1], exact.values[:, 0]) + 0.3
    np.testing.assert_allclose(turned[:, :2], 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-12)
    np.testing.assert_allclose(turned[:, 2], exact.values[:, 2] + 0.3)


def test_bad_sensors_are_named() -> None:
    assert sensor_from_text(["lab", "noise=0.001"]).rate == 120.0
    for words, message in ((["mocap"], "sensor is 'mocap'"), (["noise=x"], "noise is 'x'"), (["dropout=2"], "dropout is 2")):
        with pytest.raises(OptionError, match=message):
            sensor_from_text(words)
