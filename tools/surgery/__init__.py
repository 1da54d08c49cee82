"""Operations on nets and their weights: pure functions from a NetParameter to an `Edit`."""
