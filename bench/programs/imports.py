"""Times the import of each module in a Python of its own: imports.py DIR [copy-to DIR] [MODULE]...

With `copy-to`, DIR is first copied (not timed): a file system made for this run is empty.
"""

import shutil
import subprocess
import sys

MODULES = ["django", "flask", "jinja2", "matplotlib", "numpy", "pip", "requests", "setuptools", "werkzeug"]
ONE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

where, names = sys.argv[1], sys.argv[2:]
if names[:1] == ["copy-to"]:
    shutil.copytree(where, names[1])
    where, names = names[1], names[2:]
total = 0
for m in names or MODULES:
    # -S: nothing but the standard library and `where`; -B: nothing is written there.
    r = subprocess.run([sys.executable, "-S", "-B", "-c", ONE.format(m)], env={"PYTHONPATH": where},
                       capture_output=True, text=True)
    if r.returncode != 0:
        print(f"{m}\tfailed\t{r.stderr.strip().splitlines()[-1][:120]}", flush=True)
        continue
    print(f"{m}\t{float(r.stdout) * 1000:.2f}\tms", flush=True)
    total += float(r.stdout) * 1000
print(f"all nine\t{total:.2f}\tms")
