"""Runs a room's recipe stage by stage, examines each fit, and searches for the cause of what a model does not explain."""

from .identification import Identification, StageResult
from .run import RecipeInterrupted, run_recipe

__all__ = ["Identification", "RecipeInterrupted", "StageResult", "run_recipe"]
