import os
import sys

import runpod


def handler(job):
    return {"folder": os.getcwd(), "name": sys.argv[0], "file": __file__, "first": sys.path[0]}


runpod.serverless.start({"handler": handler})
