"""A forearm that muscles move; director coordinates and discrete null spaces [Penner2020]."""

from ...core.system import System, TaskId

SYSTEM = System(
    name="arm",
    summary="a forearm that biceps and triceps move about the elbow",
    engine="softgym_envs.systems.arm.dynamics:ElbowSimulator",
    models={
        "elbow": "softgym_envs.systems.arm.model:elbow",
        "pneumatic_elbow": "softgym_envs.systems.arm.model:pneumatic_elbow",
    },
    read_model="softgym_envs.systems.arm.model:read_elbow",
    ground_truths={"mujoco": "softgym_envs.systems.arm.mujoco:MujocoElbow"},
    tasks=(
        TaskId("ArmReach-v0", "softgym_envs.systems.arm.build:reach", 100, "elbow"),
        TaskId("ArmHold-v0", "softgym_envs.systems.arm.build:hold", 200, "elbow"),
    ),
    picture="softgym_envs.systems.arm.picture:PICTURE",
    procedure="softgym_envs.systems.arm.procedure:PROCEDURE",
    study="softgym_envs.systems.arm.procedure:STUDY",
    learning="softgym_envs.systems.arm.learning:LEARNING",
    controllers="softgym_envs.systems.arm.controllers:CONTROLLERS",
    planning="softgym_envs.systems.arm.controllers:PLANNING",
    ends="softgym_envs.systems.arm.controllers:ENDS",
    objectives={"reach": "softgym_envs.systems.arm.procedure:REACH", "hold": "softgym_envs.systems.arm.procedure:HOLD"},
    free_structure=("rest_angle", "parameter_values"),
)

__all__ = ["SYSTEM"]
