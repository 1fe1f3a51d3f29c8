"""Ways from a problem to constants; `METHODS` lists those that end in a `FitResult`."""

from .table import METHODS, Method, method_of

__all__ = ["METHODS", "Method", "method_of"]
