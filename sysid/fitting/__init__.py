"""Methods that identify parameters; `.table.METHODS` lists those that return a `FitResult`."""
