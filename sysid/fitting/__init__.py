"""Methods that identify parameters; `METHODS` lists those that return a `FitResult`."""

from .table import METHODS, Method, method_of

__all__ = ["METHODS", "Method", "method_of"]
