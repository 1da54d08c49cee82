"""Where the files of the checkout are that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
GOLDEN = ROOT / "tests" / "golden"
"""What a real Caffe computed, and measured traces."""
PROGRAMS = ROOT / "tests" / "support" / "programs"
"""Scripts that jobs of tests run, alone or on every rank."""
IMAGE_MODELS = sorted(
    path.parent.name for path in MODELS.glob("*/train_val.prototxt") if "EmbeddingBag" not in path.read_text()
)
"""The nets in models/ that take images; the others are for click-through rates."""
