"""Rigid bodies with unilateral contact and Coulomb friction: particles on a plane, a block pulled over a table."""

from ..core.room import Room, TaskId
from .model import BlockModel, ParticleModel
from .parameters import BlockParameters, ParticleParameters, particle_parameters

BLOCK = Room(
    name="block",
    summary="a block on three supports that slides on a table with Coulomb friction",
    engine="softgym_envs.rigid.dynamics:BlockSimulator",
    models={"block": "softgym_envs.rigid.model:BlockModel"},
    read_model="softgym_envs.rigid.scene_file:load_block",
    truths={"mujoco": "softgym_envs.rigid.mujoco:BlockTwin"},
    tasks=(TaskId("SlidingBlock-v0", "softgym_envs.rigid.build:sliding_block", 100, "block"),),
    picture="softgym_envs.rigid.picture:BLOCK",
    recipe="softgym_envs.rigid.recipe:BLOCK",
    controllers="softgym_envs.rigid.controllers:CONTROLLERS",
    free_structure=("attachment", "pulley", "handle", "force_limit", "half_size", "num_directions"),
)
PARTICLES = Room(
    name="particles",
    summary="particles that fall on flat ground and slide, with a friction each",
    engine="softgym_envs.rigid.dynamics:ParticleSimulator",
    models={"particles": "softgym_envs.rigid.model:ParticleModel"},
    read_model="softgym_envs.rigid.scene_file:load_particles",
    recipe="softgym_envs.rigid.recipe:PARTICLES",
    truths={"mujoco": "softgym_envs.rigid.mujoco:ParticleTwin"},
    picture="softgym_envs.rigid.picture:PARTICLES",
    free_structure=("force_limit", "start"),
)

__all__ = [
    "BLOCK",
    "PARTICLES",
    "BlockModel",
    "BlockParameters",
    "ParticleModel",
    "ParticleParameters",
    "particle_parameters",
]
