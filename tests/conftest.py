"""Set before any test module is imported: no window, no sound, one thread per library."""

import os

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ.setdefault("OMP_NUM_THREADS", "1")
