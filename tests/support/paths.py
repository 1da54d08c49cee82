"""Where the files of the checkout are that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
GOLDEN = ROOT / "tests" / "golden"
"""What a real Caffe computed, and measured traces."""
PROGRAMS = ROOT / "tests" / "support" / "programs"
"""Scripts that jobs of tests run, alone or on every rank."""
