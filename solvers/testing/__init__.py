"""Test runs: scores of the test nets, over all ranks, and leaving them early."""
