"""A flexible loop, an inflated bicycle tyre, held by a robot arm and clamped to a table [Caldwell2014]."""
