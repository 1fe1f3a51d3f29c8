"""The numerical core of every fit: residuals of segments with their derivatives, and Levenberg-Marquardt with blocks."""
