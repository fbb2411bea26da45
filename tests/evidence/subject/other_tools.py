"""A plugin that is loaded before the recorder starts: other tools that hold ids of `sys.monitoring`."""

import os
import sys

for number in map(int, os.environ["TAKEN_IDS"].split()):
    sys.monitoring.use_tool_id(number, f"tool {number}")
