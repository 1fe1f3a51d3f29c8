"""The pictures of block and particles, and keys that push them where they point."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import ShapeError
from softgym_envs.engines.mujoco.mjcf import NoParameters
from softgym_envs.envs.drawing import scene_of
from softgym_envs.rendering import PygameRenderer
from softgym_envs.rendering.scene import Arrow, GroundGrid, Prism, Sphere
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.picture import BLOCK, HEIGHT, PARTICLES, block_scene


def test_pictures_show_block_string_and_goal():
    simulator = BlockSimulator()
    scene = scene_of(simulator, np.zeros(6), {"pose": np.array([0.3, 0.1, 0.5])})
    (block,) = [p for p in scene.primitives if isinstance(p, Prism)]
    np.testing.assert_allclose(np.ptp(block.outline, axis=0), [0.2, 0.2])
    centers = [p.center[:2].tolist() for p in scene.primitives if isinstance(p, Sphere)]
    assert list(simulator.model.pulley) in centers
    for point in simulator.model.supports:
        assert any(np.allclose(point, c) for c in centers)
    image = PygameRenderer(mode="rgb_array", size=(160, 120)).draw(scene)
    assert image.shape == (120, 160, 3) and np.ptp(image) > 50
    particles = ParticleSimulator(ParticleModel(3))
    balls = [p for p in scene_of(particles, particles.initial_state()[0]).primitives if isinstance(p, Sphere)]
    assert len(balls) == 3
    with pytest.raises(ShapeError, match="pose"):
        block_scene(simulator.model, np.zeros(6), pose=np.zeros(2))


@pytest.mark.parametrize("tilts", [(0.3, 0.0), (0.0, -0.3), (-0.25, 0.25)])
def test_a_table_that_is_not_level_falls_where_the_block_slides(tilts: tuple[float, float]):
    simulator = BlockSimulator(BlockModel(pulley=None))
    parameter_values = simulator.default_parameters.replace(friction=0.1, tilt_x=tilts[0], tilt_y=tilts[1])
    state = np.array([0.2, -0.1, 0.4, 0.0, 0.0, 0.0])
    slid = simulator.rollout(state[None], np.zeros((1, 30, 2)), parameter_values)[0][0, -1, :2] - state[:2]
    way = slid / np.linalg.norm(slid)
    scene = scene_of(simulator, state, {"pose": np.array([0.5, 0.1, 0.5])}, parameters=parameter_values)
    (ground,) = [p for p in scene.primitives if isinstance(p, GroundGrid)]
    (block,) = [p for p in scene.primitives if isinstance(p, Prism)]
    assert ground.height(*way) < ground.height(0.0, 0.0) - 0.2 and block.floor is ground.height
    downhill = next(p for p in scene.primitives if isinstance(p, Arrow))
    along = (downhill.end - downhill.start)[:2]
    np.testing.assert_allclose(along / np.linalg.norm(along), way, atol=0.02)
    for ball in (p for p in scene.primitives if isinstance(p, Sphere)):
        assert ball.center[2] == pytest.approx(ground.height(*ball.center[:2]) + HEIGHT)
    without = scene_of(simulator, state, parameters=NoParameters())
    assert len([p for p in without.primitives if isinstance(p, Arrow)]) == 1  # where the block's front is


def test_a_pushed_block_goes_where_the_arrow_points():
    """From rest, however it is turned, the handle's side of the block goes along the heading first."""
    env = gym.make("SlidingBlock-v0").unwrapped
    env.reset(seed=0)
    model, heading = env.simulator.model, np.array([0.6, -0.8])
    for theta in (0.0, 1.0, -2.5):
        state = np.array([0.1, -0.2, theta, 0.0, 0.0, 0.0])
        control = env.task.scale_action(BLOCK.heading_action(model, state, heading)[None])
        after = env.simulator.step(state[None], control, env.episodes.parameters, substeps=5)[0][0]
        assert np.dot(model.to_table(after, model.handle) - model.to_table(state, model.handle), heading) > 0
        np.testing.assert_allclose(BLOCK.followed(model, state), [0.1, -0.2, 0.0])


def test_particles_are_followed_and_pushed_along_their_planes():
    simulator = ParticleSimulator(ParticleModel(3))
    state = simulator.initial_state()[0]
    state[::4] = 0.3, 0.6, 0.9
    scene, point = scene_of(simulator, state), PARTICLES.followed(simulator.model, state)
    balls = [p.center for p in scene.primitives if isinstance(p, Sphere)]
    np.testing.assert_allclose(point, np.mean(balls, axis=0), atol=1e-12)
    assert np.linalg.norm(point - scene.look_at) < scene.extent  # also before they fall
    control = PARTICLES.heading_action(simulator.model, state, np.array([-0.6, 0.8]))[None]
    after = simulator.step(state[None], control)[0][0]
    assert (after[2::4] < 0).all()
