"""The timeline of some iterations: recorded on all ranks, written in Chrome's trace format."""
