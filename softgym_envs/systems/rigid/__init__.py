"""Rigid bodies with unilateral contact and Coulomb friction: particles on a plane, a block pulled over a table."""

from ...core.system import System, TaskId
from .model import BlockModel, ParticleModel
from .parameters import BlockParameters, ParticleParameters, particle_parameters

BLOCK = System(
    name="block",
    summary="a block on three supports that slides on a table with Coulomb friction",
    engine="softgym_envs.systems.rigid.dynamics:BlockSimulator",
    models={"block": "softgym_envs.systems.rigid.model:BlockModel"},
    read_model="softgym_envs.systems.rigid.scene_file:load_block",
    ground_truths={"mujoco": "softgym_envs.systems.rigid.mujoco:MujocoBlock"},
    tasks=(TaskId("SlidingBlock-v0", "softgym_envs.systems.rigid.build:sliding_block", 100, "block"),),
    picture="softgym_envs.systems.rigid.picture:BLOCK",
    procedure="softgym_envs.systems.rigid.procedure:BLOCK",
    learning="softgym_envs.systems.rigid.learning:LEARNING",
    controllers="softgym_envs.systems.rigid.controllers:CONTROLLERS",
    planning="softgym_envs.systems.rigid.controllers:PLANNING",
    free_structure=("attachment", "pulley", "handle", "force_limit", "half_size", "num_directions"),
)
PARTICLES = System(
    name="particles",
    summary="particles that fall on flat ground and slide, with a friction each",
    engine="softgym_envs.systems.rigid.dynamics:ParticleSimulator",
    models={"particles": "softgym_envs.systems.rigid.model:ParticleModel"},
    read_model="softgym_envs.systems.rigid.scene_file:load_particles",
    procedure="softgym_envs.systems.rigid.procedure:PARTICLES",
    ground_truths={"mujoco": "softgym_envs.systems.rigid.mujoco:MujocoParticles"},
    picture="softgym_envs.systems.rigid.picture:PARTICLES",
    free_structure=("force_limit", "start"),
)

__all__ = ["BLOCK", "PARTICLES", "BlockModel", "BlockParameters", "ParticleModel", "ParticleParameters", "particle_parameters"]
