"""An OpenAI-compatible server for one machine: `dflash-gguf serve`.

Data flows one way: schema.py (what may be asked) → requests.py (settings and prompts) → answering.py (in the engine and
on the way out, by post.py) → answers.py and events.py (what is written) → responses.py. app.py wires them to paths,
guard.py stands before them, process.py is the process around them.
"""

from __future__ import annotations
