import os

import runpod

runpod.serverless.start({"handler": lambda job: os.getpid(), "refresh_worker": True})
