"""The decoder without a server.

Reads `TOKENS` from standard input, and prints the seconds until the first and until the last token.
"""

import sys
import time

sys.path.insert(0, sys.argv[1])
from net import Net

net = Net()
for _ in net.generate(16):
    pass
for line in sys.stdin:
    began = time.perf_counter()
    first = None
    for _ in net.generate(int(line)):
        first = first or time.perf_counter() - began
    print(first, time.perf_counter() - began, flush=True)
