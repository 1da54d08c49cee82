"""`engine train -np N`: starts the ranks under mpirun, passes their output on, and says how the job ended."""
