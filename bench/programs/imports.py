"""Times the import of each module in a Python of its own: imports.py DIR [copy-to DIR] [MODULE]...

With `copy-to`, DIR is first copied (not timed): a file system made for this run is empty.
"""

import os
import shutil
import subprocess
import sys

MODULES = ["django", "flask", "jinja2", "matplotlib", "numpy", "pip", "requests", "setuptools", "werkzeug"]
ONE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

# For a quick check: one that needs no other.
SMALL = ["pip"]

small = float(os.environ.get("BENCH_PART", "1")) < 1
where, names = sys.argv[1], sys.argv[2:]
if names[:1] == ["copy-to"]:
    for m in SMALL if small else os.listdir(where):
        from_, to = os.path.join(where, m), os.path.join(names[1], m)
        os.makedirs(names[1], exist_ok=True)
        shutil.copytree(from_, to) if os.path.isdir(from_) else shutil.copy2(from_, to)
    where, names = names[1], names[2:]
total, done, modules = 0, [], names or (SMALL if small else MODULES)
for m in modules:
    # -S: nothing but the standard library and `where`; -B: nothing is written there.
    r = subprocess.run([sys.executable, "-S", "-B", "-c", ONE.format(m)], env={"PYTHONPATH": where},
                       capture_output=True, text=True)
    if r.returncode != 0:
        print(f"{m}\tfailed\t{r.stderr.strip().splitlines()[-1][:120]}", flush=True)
        continue
    print(f"{m}\t{float(r.stdout) * 1000:.2f}\tms", flush=True)
    total += float(r.stdout) * 1000
    done.append(m)
if done == MODULES:
    print(f"all nine\t{total:.2f}\tms")
