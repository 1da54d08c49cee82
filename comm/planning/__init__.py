"""Which gradients travel together: pure functions from sizes, ready times and costs to plans, and their files."""
