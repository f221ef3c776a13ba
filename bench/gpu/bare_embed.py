"""An embedding net without a server.

Reads `SIZE DIMENSIONS SECONDS` from standard input, and prints the texts per second in calls of SIZE texts.
"""

import sys
import time

folder, kind = sys.argv[1:]
sys.path.insert(0, folder)
from net import Net

net = Net(kind)
for line in sys.stdin:
    size, dimensions, seconds = line.split()
    texts = ["a short text to embed"] * int(size)
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < float(seconds):
        net.embed(texts, int(dimensions))
        done += len(texts)
    print(done / took, flush=True)
