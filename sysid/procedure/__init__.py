"""Runs a system's procedure stage by stage, examines each fit, and searches for the cause of what a model does not explain."""

from .identification import Identification, StageResult
from .run import ProcedureInterrupted, run_procedure

__all__ = ["Identification", "ProcedureInterrupted", "StageResult", "run_procedure"]
