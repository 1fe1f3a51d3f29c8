"""Torso and two arms, moved by joint torques or by muscles [Penner2020]."""

from ...core.system import System, TaskId

SYSTEM = System(
    name="upper_body",
    summary="torso and two arms, 9 bodies with 12 degrees of freedom, moved by joint torques",
    engine="softgym_envs.systems.upper_body.dynamics:BodySimulator",
    models={"upper_body": "softgym_envs.systems.upper_body.model:upper_body"},
    read_model="softgym_envs.systems.upper_body.model:read_body",
    ground_truths={
        "mujoco": "softgym_envs.systems.upper_body.mujoco:MujocoUpperBody",
        "pinocchio": "softgym_envs.systems.upper_body.pinocchio:PinocchioUpperBody",
    },
    tasks=(TaskId("UpperBodyReach-v0", "softgym_envs.systems.upper_body.build:reach", 150, "upper_body"),),
    picture="softgym_envs.systems.upper_body.picture:PICTURE",
    procedure="softgym_envs.systems.upper_body.procedure:PROCEDURE",
    study="softgym_envs.systems.upper_body.procedure:STUDY",
    learning="softgym_envs.systems.upper_body.learning:LEARNING",
    controllers="softgym_envs.systems.upper_body.controllers:CONTROLLERS",
    planning="softgym_envs.systems.upper_body.controllers:PLANNING",
    objectives={"reach": "softgym_envs.systems.upper_body.procedure:REACH"},
    free_structure=("parameter_values",),
)

__all__ = ["SYSTEM"]
