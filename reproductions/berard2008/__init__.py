"""The baseline of [Berard2008]: a particle filter for states and parameters, `particle_filter`."""
