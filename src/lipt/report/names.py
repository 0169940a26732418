"""Algorithms and rows that the report knows by their names."""

#: The algorithms that draw at random.
RANDOM = ("random", "stratified")
#: The row beside a run of RS2: a random subset of the size of one epoch, the same in every epoch. No variant has it.
FIXED = "fixed-random"
#: The random subset that is trained longer, for the FLOPs of all that the choice, the start or the first losses took;
#: `flow/compare.py` counts its steps.
LONGER = "random-longer"
#: The random subset whose training starts from the model that scored; from theta_p where the jigsaws score.
CONTINUED = "random-continued"
