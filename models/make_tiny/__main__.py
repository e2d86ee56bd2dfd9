"""`python models/make_tiny`: makes the tiny pair, stage by stage (see stages.py)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # this folder as a package

from make_tiny.stages import main

if __name__ == "__main__":
    main()
