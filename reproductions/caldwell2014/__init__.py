"""Outlooks of [Caldwell2014]: the most informative manipulation, `excitation`; estimates while the arm moves, `online`."""
