"""What only observes training: counts, times, the smoothed loss, debug_info, non-finite values."""
