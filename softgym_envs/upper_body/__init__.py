"""Torso and two arms, moved by joint torques or by muscles [Penner2020]."""

from ..core.room import Room, TaskId

ROOM = Room(
    name="upper_body",
    summary="torso and two arms, 9 bodies with 12 degrees of freedom, moved by joint torques",
    engine="softgym_envs.upper_body.dynamics:BodySimulator",
    models={"upper_body": "softgym_envs.upper_body.model:upper_body"},
    read_model="softgym_envs.upper_body.model:read_body",
    truths={"mujoco": "softgym_envs.upper_body.mujoco:BodyTwin"},
    tasks=(TaskId("UpperBodyReach-v0", "softgym_envs.upper_body.build:reach", 150, "upper_body"),),
    picture="softgym_envs.upper_body.picture:PICTURE",
    recipe="softgym_envs.upper_body.recipe:RECIPE",
    study="softgym_envs.upper_body.recipe:STUDY",
    learning="softgym_envs.upper_body.learning:LEARNING",
    controllers="softgym_envs.upper_body.controllers:CONTROLLERS",
    objectives={"reach": "softgym_envs.upper_body.recipe:REACH"},
    free_structure=("constants",),
)

__all__ = ["ROOM"]
