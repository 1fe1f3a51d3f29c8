"""A forearm that muscles move; director coordinates and discrete null spaces [Penner2020]."""

from ..core.room import Room, TaskId

ROOM = Room(
    name="arm",
    summary="a forearm that biceps and triceps move about the elbow",
    engine="softgym_envs.arm.dynamics:ElbowSimulator",
    models={"elbow": "softgym_envs.arm.model:elbow", "pneumatic_elbow": "softgym_envs.arm.model:pneumatic_elbow"},
    read_model="softgym_envs.arm.model:read_elbow",
    truths={"mujoco": "softgym_envs.arm.mujoco:ElbowTwin"},
    tasks=(
        TaskId("ArmReach-v0", "softgym_envs.arm.build:reach", 100, "elbow"),
        TaskId("ArmHold-v0", "softgym_envs.arm.build:hold", 200, "elbow"),
    ),
    picture="softgym_envs.arm.picture:PICTURE",
    recipe="softgym_envs.arm.recipe:RECIPE",
    study="softgym_envs.arm.recipe:STUDY",
    learning="softgym_envs.arm.learning:LEARNING",
    controllers="softgym_envs.arm.controllers:CONTROLLERS",
    objectives={"reach": "softgym_envs.arm.recipe:REACH", "hold": "softgym_envs.arm.recipe:HOLD"},
    free_structure=("rest_angle", "constants"),
)

__all__ = ["ROOM"]
