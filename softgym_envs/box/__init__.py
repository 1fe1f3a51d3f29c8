"""A rigid box that is thrown on a table: it strikes, slides, tips and bounces."""

from ..core.room import Room
from .model import BoxModel
from .parameters import BoxParameters

ROOM = Room(
    name="box",
    summary="a rigid box that is thrown on a table: it strikes, slides, tips and bounces",
    engine="softgym_envs.box.dynamics:BoxSimulator",
    models={"cube": "softgym_envs.box.model:cube", "square": "softgym_envs.box.model:square"},
    read_model="softgym_envs.box.scene_file:load_box",
    truths={"mujoco": "softgym_envs.box.mujoco:BoxTwin"},
    picture="softgym_envs.box.picture:PICTURE",
    recipe="softgym_envs.box.recipe:RECIPE",
    free_structure=("force_limit",),
)

__all__ = ["ROOM", "BoxModel", "BoxParameters"]
