"""Tables that are divided among the ranks that train in step."""
