"""The log and the timeline of a training loop over a module that is trained on several ranks."""
