import sys
from pathlib import Path

# The samples and reference algorithms live beside the unit tests.
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "selection"))
