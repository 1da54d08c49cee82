"""Who died, and why: status records, the threads that watch them, and the guard that ends a job as a whole."""
