"""Director coordinates and discrete null spaces [Penner2020]: `directors`, `director_steps`; the elbow with them, `dmocc`."""
