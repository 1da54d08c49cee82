"""Hogwild: several worker threads of a trainer that update one replica of the parameters."""
