"""Lets the recorder take tool events that pyzmq and msgpack send: see tool_events.py and the test TestPyzmq."""

import os
import subprocess
import sys
from pathlib import Path

test = ["go", "test", "-count=1", "-run", "^TestPyzmq$", "-v", "./trace/recorder/toolevent"]
done = subprocess.run(test, cwd=Path(__file__).parent.parent, env=os.environ | {"INTEROP_PYTHON": sys.executable}, check=False)
sys.exit(done.returncode)
