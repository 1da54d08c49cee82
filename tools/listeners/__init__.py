"""What turns a run's events into output: Caffe's log lines, a progress line, JSON, TensorBoard, log files."""
