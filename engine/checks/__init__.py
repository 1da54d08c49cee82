"""What is checked of a net beside its layers: sizes that fit, fields that nothing reads, names that forks use."""
