"""The vine robot exactly as its paper has it: a fast step, and its quadratic program as a reference."""
