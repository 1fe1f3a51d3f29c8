"""The vine's picture: tube, tip and obstacles where the state says, keys that bend it where they point, tracked points."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.rendering.colors import FORCE, OBSTACLE, RING, TUBE, as_color, tension_colors
from softgym_envs.rendering.scene import Arrow, Marker, Prism, Segment, Sphere
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle, rectangle
from softgym_envs.systems.vine.picture import NO_FORCES, PICTURE, vine_scene


def kinds(scene, kind, color=None):
    return [
        part
        for part in (*scene.primitives, *scene.overlay)
        if isinstance(part, kind) and (color is None or part.color == color)
    ]


def test_the_tube_ends_at_the_tip_and_obstacles_are_drawn():
    model = VineModel(obstacles=(circle(0.6, 0.2, 0.05), rectangle(0.5, -0.3, 0.1, 0.1)))
    state = model.straight_state(0.5, 1.0)
    scene = vine_scene(model, state, NO_FORCES, goal=np.array([0.7, 0.0, 0.0]))
    balls = kinds(scene, Sphere, TUBE)
    np.testing.assert_allclose(balls[-1].center[:2], model.tip(state)[:2], atol=1e-9)
    np.testing.assert_allclose(PICTURE.followed(model, state)[:2], model.tip(state)[:2])
    assert all(ball.radius == model.radius for ball in balls)
    assert len(kinds(scene, Prism, OBSTACLE)) == 2 and len(kinds(scene, Marker)) == 1 and not kinds(scene, Arrow)


def test_length_and_pressures_are_seen():
    """A ring every 0.1 m says the length; muscles have the colours of their pressures, left and right."""
    model = VineModel()
    state = model.straight_state(0.85)
    pressure = model.split(state).pressure.reshape(-1, 2)
    pressure[0], pressure[1] = [model.max_steering, 0.0], [0.0, 0.5 * model.max_steering]
    scene = vine_scene(model, state, NO_FORCES)
    assert scene.legend.note == "a ring every 10 cm" and len(kinds(scene, Segment, RING)) == 8
    for section, (left, right) in enumerate(pressure / model.max_steering):
        first = int(np.flatnonzero(model.section_of_joint == section)[0])
        for share, side in ((left, 1.0), (right, -1.0)):
            place = model.points(state)[first] + np.array([0.0, 0.8 * side * model.radius])
            (muscle,) = (part for part in kinds(scene, Segment) if np.allclose(part.start[:2], place))
            assert muscle.color == as_color(tension_colors(np.array([share]))[0])


def test_a_robot_that_leans_on_an_obstacle_shows_the_force():
    model = VineModel(obstacles=(circle(0.55, 0.0, 0.05),))
    simulator = VineSimulator(model)
    state = model.straight_state(0.51 - model.radius + 0.004)
    arrows = kinds(PICTURE.scene(simulator, state, {}, simulator.default_parameters), Arrow)
    assert len(arrows) >= 1 and all(arrow.start[0] > arrow.end[0] for arrow in arrows)  # it pushes the robot back


@pytest.mark.parametrize("heading, sign", [((0.0, 1.0), 1.0), ((0.0, -1.0), -1.0), ((1.0, 0.0), 0.0)])
def test_keys_bend_towards_the_heading_and_grow(heading, sign):
    model = VineModel()
    action = PICTURE.heading_action(model, model.straight_state(0.4), np.array(heading))
    assert action[0] == 1.0 and PICTURE.rest_action(model)[0] == -1.0
    np.testing.assert_allclose(np.sign(np.round(action[1:], 9)), sign)


def test_tracked_points_lie_over_the_fitted_tube_and_lost_ones_are_left_out():
    model = VineModel(obstacles=(circle(0.6, 0.2, 0.05),))
    fitted = np.column_stack([np.linspace(0.0, 0.4, 5), np.zeros(5)])
    measured = fitted + 0.01
    measured[2] = np.nan
    scene = PICTURE.overlay(model, fitted, measured)
    assert len(kinds(scene, Segment, TUBE)) == 4 and len(kinds(scene, Prism, OBSTACLE)) == 1 and scene.legend is None
    np.testing.assert_allclose([dot.center[:2] for dot in kinds(scene, Sphere, FORCE)], measured[[0, 1, 3, 4]])


def test_goals_are_in_view_and_range_readings_end_where_they_say():
    """The goal is within the picture's half height of its middle; rays begin at the tip and are as long as the readings."""
    env = gym.make("softgym_envs:VineSqueeze-v0").unwrapped
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        hints = env.task.draw_hints(env.context)
        scene = vine_scene(env.simulator.model, env.state, NO_FORCES, **hints)
        assert np.abs(hints["goal"][:2] - scene.look_at[:2])[1] < scene.extent
        rays = hints["rays"]
        np.testing.assert_allclose(rays[:, 0, :2], np.tile(env.simulator.model.tip(env.state)[:2], (len(rays), 1)), atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(rays[:, 1] - rays[:, 0], axis=1), observation[-len(rays) :], atol=1e-6)
